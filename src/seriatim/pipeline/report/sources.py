"""From the sources that a user names to sections of a report: the kind of each source, and how it is read. Needs no
Spark.

A source is a folder of logs or a file of deliveries (a run), what `seriatim audit --json` printed, a folder of
measurements, or a folder of a plan. Small runs are read and judged in this process; `spark.py` reads others.

Measurements are the curves that `seriatim reproduce` and `seriatim sweep` keep: a few hundred rows, so plain files.
OUT/ID/measurements holds JSON lines, one row per curve, x and measure; OUT/ID/comparisons.jsonl, if it is there, what
the paper states and ours beside it. Titles and units come from the caller, which knows the experiments.
"""

import json
import re
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypeVar

import msgspec
from msgspec.structs import replace

from seriatim.audit import BREAKS, CERTIFICATE, Anomaly, ColumnMapping, Verdict, audit, read_history
from seriatim.audit.report import judged_with
from seriatim.model import UNREADABLE, Delivery, InputError, Placement, Publication, Subscription
from seriatim.order import GUARANTEES
from seriatim.pipeline.report.figures import figures_of
from seriatim.pipeline.report.pages import (
    Comparison,
    Experiment,
    Judgement,
    Measurement,
    PlanSection,
    RunSection,
    Shape,
    SweepSection,
    TreeNode,
)

Kind: TypeAlias = Literal["run", "audit", "sweep", "plan"]
T = TypeVar("T", bound=msgspec.Struct)

ROWS = {"delivery": Delivery, "publication": Publication, "subscription": Subscription, "placement": Placement}
COUNTS = ("deliveries", "subscribers", "events", "shared", "out_of_order")
PLAN_FILES = ("plan.json", "plan.toml")
MEASUREMENTS, COMPARISONS = "measurements", "comparisons"
SUFFIXES = (".json", ".jsonl")
WHAT = (
    "give a folder with deliveries, a .jsonl or .csv file of deliveries, the output of `seriatim audit --json`, "
    "a folder with measurements or a folder with plan.toml"
)


def kind_of(source: str, is_foreign: bool = False) -> Kind:
    """What a source is, by the names of its files. `is_foreign`: the logs of runs are another system's."""
    path = Path(source)
    if "://" in source:
        return "run"
    if path.is_dir():
        if any(file.name.partition(".")[0] == "deliveries" for file in path.iterdir()):
            return "run"
        if any((path / name).is_file() for name in PLAN_FILES):
            return "plan"
        if _files(path, MEASUREMENTS):
            return "sweep"
        if is_foreign or any(path.glob("*.parquet")) or any(path.glob("*.jsonl")) or any(path.glob("*.csv")):
            return "run"
        raise InputError(source, "nothing in this folder can be reported", WHAT)
    if not path.exists():
        if is_foreign:
            return "run"  # a pattern
        raise InputError(source, "no such file or folder", "correct the path")
    if path.name.startswith(f"{MEASUREMENTS}."):
        return "sweep"
    if path.name in PLAN_FILES:
        return "plan"
    return "audit" if path.suffix == ".json" and not is_foreign else "run"


def name_of(source: str) -> str:
    """What a section is called: the last part of its path."""
    return source.rstrip("/").rpartition("/")[2] or source


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise InputError(str(file), error.strerror or "cannot be read", "check the path and its permissions") from None


# ── runs ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def read_run(
    source: str, guarantees: Iterable[str] = GUARANTEES, limit: int = 10, mapping: ColumnMapping | None = None
) -> RunSection:
    """A small run: read, judged and counted in this process."""
    history = read_history(source, mapping)
    return RunSection(
        name=name_of(source),
        judgement=restricted(Judgement.of(audit(history, limit)), guarantees),
        figures=figures_of(history),
        note=note_of(mapping),
    )


def note_of(mapping: ColumnMapping | None, *more: str) -> str:
    """What the verdicts cannot know because of how the log was read, and more."""
    notes = [*(mapping.notes() if mapping is not None else []), *more]
    return " ".join(f"{note[0].upper()}{note[1:]}." for note in notes)


def restricted(judgement: Judgement, guarantees: Iterable[str]) -> Judgement:
    """Keep only the guarantees that were asked for, and the anomalies that break them. A certificate is always kept."""
    asked = [name for name in judgement.verdicts if name in {CERTIFICATE, *guarantees}]
    below = frozenset[str]().union(*map(judged_with, asked))
    return replace(
        judgement,
        verdicts={name: judgement.verdicts[name] for name in asked},
        anomalies=tuple(one for one in judgement.anomalies if BREAKS.get(one.name, "") in below),
    )


def read_audit(source: str, guarantees: Iterable[str] = GUARANTEES) -> RunSection:
    """Read the output of `seriatim audit --json`."""
    fix = "give what `seriatim audit --json` printed"
    try:
        raw = json.loads(_read(Path(source)).decode("utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise InputError(source, f"not JSON ({error})", fix) from None
    if not isinstance(raw, dict) or "verdicts" not in raw or "anomalies" not in raw:
        raise InputError(source, "not the result of an audit", fix)
    try:
        verdicts = {name: {"guarantee": name, **verdict} for name, verdict in raw["verdicts"].items()}
        judgement = Judgement(
            verdicts=msgspec.convert(verdicts, dict[str, Verdict]),
            anomalies=tuple(_anomaly(one) for one in raw["anomalies"]),
            counts=msgspec.convert(raw.get("counts", {}), dict[str, int]),
            **{name: msgspec.convert(raw.get(name, 0), int) for name in COUNTS},
        )
    except (msgspec.ValidationError, KeyError, AttributeError, TypeError) as error:
        raise InputError(source, f"not the result of an audit ({error})", fix) from None
    notes = raw.get("notes", [])
    note = " ".join(f"{one}." for one in notes) if isinstance(notes, list) else ""
    return RunSection(name=name_of(source), judgement=restricted(judgement, guarantees), note=note)


def _anomaly(raw: dict[str, Any]) -> Anomaly:
    rows = tuple(msgspec.convert(row, ROWS[row["row"]]) for row in raw["witness"])
    return Anomaly(msgspec.convert(raw["name"], str), msgspec.convert(raw["sentence"], str), rows)


# ── plans ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def read_plan(source: str, name: str) -> PlanSection:
    """A folder of a plan, or one of its files: `plan.json`, else the tree and the homes of `plan.toml`."""
    path = Path(source)
    file = next((path / each for each in PLAN_FILES if (path / each).is_file()), path)
    is_json = file.suffix == ".json"
    fix = "give the --out folder of `seriatim plan`"
    data = _read(file)
    try:
        raw = (json if is_json else tomllib).loads(data.decode("utf-8"))
    except ValueError as error:  # of either format, or not UTF-8
        raise InputError(str(file), f"cannot be read as a plan ({error})", fix) from None
    if isinstance(raw, dict) and raw.get("order") == "atoms":
        problem = "is a plan of atoms, and pages show trees"
        raise InputError(str(file), problem, "look at plan.json and the tables beside it")
    try:
        section = msgspec.convert(raw, PlanSection) if is_json else _of_toml(raw, name)
    except (msgspec.ValidationError, AttributeError, TypeError) as error:
        raise InputError(str(file), f"not a plan ({error})", fix) from None
    return replace(section, name=name)


def _of_toml(raw: dict[str, Any], name: str) -> PlanSection:
    """Read a plan.toml. It says where topics live, but not what that costs."""
    topics = Counter(raw.get("homes", {}).values())
    nodes = [
        TreeNode(name=node, parent=msgspec.convert(shape.get("parent"), str | None), topics=topics[node])
        for node, shape in raw.get("nodes", {}).items()
    ]
    return PlanSection(name=name, before=None, after=Shape(name="plan.toml", nodes=tuple(nodes)))


# ── sweeps ────────────────────────────────────────────────────────────────────────────────────────────────────────


class Compared(Comparison, frozen=True, kw_only=True):
    """A row of the file: a statement of the paper, and which experiment it is about."""

    experiment: str


def _files(path: Path, table: str) -> list[Path]:
    """All files of a table: the folder's own, or those of its experiments."""
    if path.is_file():
        return [path]
    found = []
    for place in sorted(path.rglob(table), key=_natural):
        found += sorted(file for file in place.iterdir() if file.suffix in SUFFIXES) if place.is_dir() else []
    return found + sorted((file for file in path.rglob(f"{table}.*") if file.suffix in SUFFIXES), key=_natural)


def _natural(path: Path) -> list[tuple[int, str]]:
    """fig7 before fig11."""
    return [(int(part), "") if part.isdecimal() else (0, part) for part in re.split(r"(\d+)", str(path))]


def read_sweep(source: str, name: str, described: Callable[[str], Experiment]) -> SweepSection:
    """All curves of a source. `described` tells what is known about an experiment: title, units, places on x."""
    rows = [row for file in _files(Path(source), MEASUREMENTS) for row in _rows(file, Measurement)]
    if not rows:
        raise InputError(source, "no measurements in it", "give the --out folder of `seriatim reproduce`")
    compared: dict[str, list[Comparison]] = {}
    for file in _files(Path(source), COMPARISONS) if Path(source).is_dir() else ():
        for row in _rows(file, Compared):
            compared.setdefault(row.experiment, []).append(row)
    known = {
        id: replace(described(id), comparisons=tuple(compared.get(id, ())))
        for id in dict.fromkeys(row.experiment for row in rows)
    }
    drawn = [row for row in rows if not known[row.experiment].measures or row.measure in known[row.experiment].measures]
    return SweepSection(name=name, measurements=tuple(_placed(drawn, known)), experiments=known)


def _rows(file: Path, kind: type[T]) -> Iterator[T]:
    decoder = msgspec.json.Decoder(kind)
    for number, line in enumerate(_read(file).splitlines(), start=1):
        if line.isspace() or not line:
            continue
        try:
            yield decoder.decode(line)
        except UNREADABLE as error:
            fix = "give what `seriatim reproduce --out` wrote"
            raise InputError(f"{file} line {number}", f"not a {kind.__name__.lower()} ({error})", fix) from None


def _placed(rows: list[Measurement], known: Mapping[str, Experiment]) -> Iterator[Measurement]:
    """Places on the x axis are text in the files. They are numbers if all of a measure's are, and names if they are not
    values of the experiment's parameter: then they are parts of the system, such as servers."""
    are_numbers: dict[tuple[str, str], bool] = {}
    for row in rows:
        key, places = (row.experiment, row.measure), known[row.experiment].places
        is_number = _number(row.x) is not None and (not places or str(row.x) in places)
        are_numbers[key] = are_numbers.get(key, True) and is_number
    for row in rows:
        value = _number(row.x) if are_numbers[row.experiment, row.measure] else None
        yield replace(row, x=str(row.x) if value is None else value)


def _number(text: float | str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
