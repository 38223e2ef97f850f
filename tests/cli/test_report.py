"""`seriatim report`: what it makes of each kind of source, and how it says what it cannot read."""

import json
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner, Result
from msgspec import structs

import seriatim
from seriatim.audit import write_history
from seriatim.cli import main
from seriatim.model import History
from tests.pipeline.report.cases import Reader, log, plan_section, timed_history


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def run(*words: str) -> Result:
    return CliRunner().invoke(main, ["report", *words])


def words_of(path: str = "report.html") -> str:
    return " ".join(Reader(Path(path).read_text(encoding="utf-8")).words)


def test_a_run() -> None:
    write_history(timed_history(), "run")
    result = run("run")
    assert (result.exit_code, result.output) == (0, "report.html: 1 section, 4 figures\n")
    assert "Published to notified" in words_of()


def test_only_some_guarantees() -> None:
    write_history(History(log(s1="a b", s2="b a")), "run")
    assert run("run", "--guarantee", "per-topic").exit_code == 0
    assert "Violated" not in words_of() and "✓ No violation in this log." in words_of()
    assert "inversion" not in words_of()


def test_a_file_of_deliveries_and_what_the_audit_printed() -> None:
    write_history(History(log(s1="a b", s2="b a")), "run")
    audited = CliRunner().invoke(main, ["audit", "run", "--json"])
    Path("audit.json").write_text(audited.output, encoding="utf-8")
    result = run("run/deliveries.jsonl", "audit.json", "--title", "Both", "--out", "sub/both.html")
    assert (result.exit_code, result.output) == (0, "sub/both.html: 2 sections, 2 figures\n")
    words = words_of("sub/both.html")
    assert words.count("s1 was notified of a before b, s2 of b before a") == 4, "caption and description, twice"
    assert "Both" in words


def test_curves_of_experiments() -> None:
    folder = Path("figures/my-experiment/measurements")
    folder.mkdir(parents=True)
    row = {"experiment": "my-experiment", "variant": "v", "measure": "m", "mean": 9.5, "std": 1, "count": 3}
    rows = [row | {"x": "10", "paper": 10.0}, row | {"x": "20", "paper": None}]
    (folder / "part-0.json").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    (folder / "_SUCCESS").write_text("", encoding="utf-8")
    assert run("figures").output == "report.html: 1 section, 1 figure\n"
    assert "1 experiment; 1 of 1 statements of the paper within their band." in words_of()


def test_what_the_paper_states_is_shown() -> None:
    measured = Path("figures/000-fig7/measurements")
    measured.mkdir(parents=True)
    row = {"experiment": "000-fig7", "variant": "0.349", "measure": "entries", "mean": 46.5, "std": 1, "count": 3}
    more = row | {"measure": "not worth drawing"}
    rows = [{**one, "x": x, "paper": None} for one in (row, more) for x in ("10000", "100000")]
    (measured / "part-0.json").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    stated = {"experiment": "000-fig7", "point": "10 topics each", "paper": "46", "ours": "50 ± 1", "band": "± 5 %"}
    stated |= {"verdict": "outside", "reason": "because", "citation": "paper 000"}
    Path("figures/000-fig7/comparisons.jsonl").write_text(json.dumps(stated) + "\n", encoding="utf-8")
    assert run("figures").output == "report.html: 1 section, 1 figure\n"
    words = words_of()
    assert "1 experiment; 0 of 1 statements of the paper within their band." in words
    assert "000-fig7: Mean size of a stamp" in words, "the experiment is known"
    assert "50 ± 1" in words and "✗ outside" in words and "because" in words


def test_a_plan() -> None:
    Path("plan").mkdir()
    Path("plan/plan.toml").write_text('[nodes.root]\n[nodes.eu]\nparent = "root"\n[homes]\na = "eu"\nb = "eu"\n')
    assert run("plan").output == "report.html: 1 section, 1 figure\n"
    assert "2 topics" in words_of()
    section = structs.asdict(plan_section())
    Path("plan/plan.json").write_text(msgspec.json.encode(section | {"what_if": []}).decode(), encoding="utf-8")
    assert run("plan").output == "report.html: 1 section, 3 figures\n"
    assert "3 → 1 wide-area hops per event (67 % fewer)" in words_of()
    Path("plan/plan.json").write_text('{"name": 1}', encoding="utf-8")
    assert "Error: plan/plan.json: not a plan (" in run("plan").output
    Path("plan/plan.json").write_text('{"order": "atoms"}')
    assert "Error: plan/plan.json: is a plan of atoms" in run("plan").output


def test_a_log_of_another_system() -> None:
    Path("logs").mkdir()
    for host, order in (("h1", "a b"), ("h2", "b a")):
        lines = [f"{word},{second}" for second, word in enumerate(order.split())]
        Path(f"logs/{host}.csv").write_text("\n".join(["msg,at", *lines, ""]), encoding="utf-8")
    result = run("logs", "--event", "msg", "--order-by", "at", "--subscriber-from", "file", "--topic-value", "T")
    assert (result.exit_code, result.output) == (0, "report.html: 1 section, 1 figure\n")
    words = words_of()
    assert "on topic T, h1 was notified of a before b, h2 of b before a" in words
    assert "Positions were made from column at: a row that is missing from the log cannot be noticed." in words


def test_figures_as_png() -> None:
    write_history(History(log(s1="a b", s2="b a")), "run")
    result = run("run", "--png", "png", "--json")
    assert result.exit_code == 0
    assert json.loads(result.output)["png"] == ["png/witness-inversion.png"]
    assert Path("png/witness-inversion.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: None, "source: no such file or folder; correct the path"),
        (
            lambda: Path("source").mkdir(),
            "source: nothing in this folder can be reported; give a folder with deliveries",
        ),
        (lambda: Path("source.json").write_text("{"), "source.json: not JSON"),
        (lambda: Path("source.json").write_text("[]"), "source.json: not the result of an audit; give what"),
        (
            lambda: Path("source.json").write_text('{"verdicts": {"tno": {"answer": "maybe"}}, "anomalies": []}'),
            "source.json: not the result of an audit (",
        ),
        (
            lambda: Path("source.json").write_text('{"verdicts": {}, "anomalies": [{"name": "x", "witness": [{}]}]}'),
            "source.json: not the result of an audit (",
        ),
        (lambda: Path("measurements.json").write_text('{"x": 1}\n'), "measurements.json line 1: not a measurement ("),
        (lambda: Path("measurements.json").write_text("\n"), "measurements.json: no measurements in it; give the"),
    ],
)
def test_what_cannot_be_read_is_said(make: object, told: str) -> None:
    assert callable(make)
    make()
    source = next(iter(path.name for path in Path().iterdir()), "source")
    result = run(source)
    assert result.exit_code == 2
    assert told in result.output
    assert not Path("report.html").exists()


def test_a_page_that_cannot_be_written_is_said() -> None:
    write_history(timed_history(), "run")
    Path("file").write_text("")
    result = run("run", "--out", "file/report.html")
    assert result.exit_code == 2
    assert "Error: file: " in result.output


def test_a_small_run_needs_neither_spark_nor_pillow() -> None:
    write_history(timed_history(), "run")
    code = (
        "import sys\n"
        "from seriatim.cli import main\n"
        "main(['report', 'run'], standalone_mode=False)\n"
        "print([name for name in ('pyspark', 'PIL', 'numpy', 'pandas') if name in sys.modules])\n"
    )
    environment = os.environ | {"PYTHONPATH": str(Path(seriatim.__file__).parent.parent)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.endswith("\n[]\n")
