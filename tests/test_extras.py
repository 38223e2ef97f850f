"""Every extra is enough for what it promises: without what other extras bring, and in a virtual environment of its own.

Quick: each extra's modules are imported with only the packages that this extra needs. Long: each extra is installed
alone, and what the documentation promises for it is run, as people run it.
"""

import importlib.metadata
import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from seriatim.brokers.nats.server import NatsServer
from tests.turns import turn
from tests.waiting import wait

REPOSITORY = Path(__file__).parent.parent
SOURCE = REPOSITORY / "src"
PACKAGE = SOURCE / "seriatim"
INSTALL_S = 600.0  # PySpark is large
COMMAND_S = 300.0
READY_S = 120.0

# What each extra promises, as the beginnings of names of modules; '' is the installation without extras.
PROMISED: dict[str, tuple[str, ...]] = {
    "": ("seriatim",),
    "nats": ("seriatim.brokers.nats",),
    "embedded": ("seriatim.demo", "seriatim.brokers.nats.server"),
    "fast": ("uvloop",),
    "spark": ("seriatim.pipeline", "pyspark_seriatim", "seriatim.lab.experiments.paper001.tree_waves"),
    "delta": ("seriatim.pipeline.arrow.delta", "deltalake"),
    "pipelines": ("seriatim.pipeline.declarative", "pyspark.pipelines.cli"),
}
NEEDS_AN_EXTRA = tuple(name for extra in ("nats", "embedded", "spark") for name in PROMISED[extra])
WITHOUT_PACKAGES = {  # part of an extra's rooms, and there without it, to say what is missing
    "seriatim.pipeline",
    "seriatim.brokers.nats.kind",
    "seriatim.brokers.nats.server",
    "seriatim.pipeline.spark.requirements",
    "seriatim.pipeline.report",
}

PROGRAM = """
import importlib, json, sys
from importlib.abc import MetaPathFinder

hidden, names = map(json.loads, sys.argv[1:])


class Hidden(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in hidden:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


sys.meta_path.insert(0, Hidden())
problems = []
for name in names:
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        problems.append(f"{name}: {error}")
print(json.dumps(problems))
"""


def project() -> dict[str, list[str]]:
    """What this project needs: of each extra, and under '' of all."""
    with (REPOSITORY / "pyproject.toml").open("rb") as file:
        found = tomllib.load(file)["project"]
    return {"": found["dependencies"], **found["optional-dependencies"]}


def distributions_of(extra: str) -> set[str]:
    """Everything that pip would install for an extra, by what is installed here."""
    ours = project()
    wanted = [*ours[""], *(ours[extra] if extra else [])]
    found: set[tuple[str, frozenset[str]]] = set()
    while wanted:
        requirement = Requirement(wanted.pop())
        key = (requirement.name.lower().replace("_", "-"), frozenset(requirement.extras))
        if key in found:
            continue
        found.add(key)
        if requirement.name == "seriatim":
            wanted += [each for name in requirement.extras for each in ours[name]]
            continue
        try:
            below = importlib.metadata.requires(requirement.name) or []
        except importlib.metadata.PackageNotFoundError:  # only for another Python or system
            continue
        for each in below:
            marker = Requirement(each).marker
            if marker is None or any(marker.evaluate({"extra": name}) for name in (*requirement.extras, "")):
                wanted.append(each)
    return {name for name, _ in found}


def hidden_from(extra: str) -> list[str]:
    """The names of packages that this extra does not bring."""
    brought = distributions_of(extra)
    return [
        name
        for name, distributions in importlib.metadata.packages_distributions().items()
        if not brought & {each.lower().replace("_", "-") for each in distributions} and name != "seriatim"
    ]


def modules() -> Iterator[str]:
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        if parts[-1] != "__main__":
            yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def below(name: str, tops: tuple[str, ...]) -> bool:
    return any(f"{name}.".startswith(f"{top}.") for top in tops)


def promised_by(extra: str) -> list[str]:
    named = PROMISED[extra]
    found = [name for name in modules() if below(name, named)]
    if not extra:
        found = [name for name in found if not below(name, NEEDS_AN_EXTRA) or name in WITHOUT_PACKAGES]
    return found + [name for name in named if name.partition(".")[0] != "seriatim"]


@pytest.mark.parametrize("extra", PROMISED)
def test_an_extra_brings_what_its_modules_import(extra: str) -> None:
    words = json.dumps(hidden_from(extra)), json.dumps(promised_by(extra))
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *words], capture_output=True, text=True, check=True, env=environment
    )
    assert json.loads(done.stdout.splitlines()[-1]) == []


def test_every_extra_has_a_promise() -> None:
    assert set(PROMISED) == set(project()) - {"dev"}


# ── installed alone ───────────────────────────────────────────────────────────────────────────────────────────────


class Installed:
    """A virtual environment with this project and one extra, and a folder to work in."""

    def __init__(self, folder: Path, extra: str) -> None:
        self.folder, self.extra = folder, extra
        self.bin = folder / "venv" / "bin"
        self._run([sys.executable, "-m", "venv", str(folder / "venv")], INSTALL_S)
        wanted = f"{REPOSITORY}[{extra}]" if extra else str(REPOSITORY)
        self._run([str(self.bin / "python"), "-m", "pip", "install", "--quiet", "--no-compile", wanted], INSTALL_S)

    @property
    def environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "SERIATIM_"))}
        path = f"{self.bin}{os.pathsep}{os.environ['PATH']}"
        return {**kept, "PATH": path, "XDG_STATE_HOME": str(self.folder / "state"), "SPARK_LOCAL_IP": "127.0.0.1"}

    def seriatim(self, *words: str | Path, code: int = 0) -> str:
        return self._run([str(self.bin / "seriatim"), *map(str, words)], COMMAND_S, code)

    def python(self, program: str, **more: str) -> str:
        return self._run([str(self.bin / "python"), "-c", program], COMMAND_S, more=more)

    def start(self, *words: str | Path) -> "subprocess.Popen[bytes]":
        log = (self.folder / f"{words[0]}.log").open("w")
        with log:
            return subprocess.Popen(
                [str(self.bin / "seriatim"), *map(str, words)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self.environment,
                cwd=self.folder,
            )

    def _run(self, words: list[str], limit_s: float, code: int = 0, more: dict[str, str] | None = None) -> str:
        done = subprocess.run(
            words,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=limit_s,
            env={**self.environment, **(more or {})},
            cwd=self.folder,
        )
        said = f"{' '.join(words)}\n{done.stdout}\n{done.stderr}"
        assert done.returncode == code and "No module named" not in said, said
        return done.stdout


ROWS = "subscriber,position,event_id,topic\ns1,0,a,A\ns1,1,b,B\ns2,0,b,B\ns2,1,a,A\n"


@pytest.mark.long
def test_without_extras(tmp_path: Path) -> None:
    alone = Installed(tmp_path, "")
    (tmp_path / "run.csv").write_text(ROWS)
    assert "tno                 invalid" in alone.seriatim("audit", "run.csv", "--guarantee", "tno", code=1)
    alone.seriatim("report", "run.csv")
    alone.seriatim("demo", "--simulated")
    alone.seriatim("explore", "tree", "--world", "pair")


@pytest.mark.long
def test_nats_alone(tmp_path: Path) -> None:
    """A cluster on a server that somebody else runs, with a key file: sequencer, publisher, subscriber."""
    import nkeys  # of this extra; the test needs it to make a key

    seed = nkeys.encode_seed(os.urandom(32), nkeys.PREFIX_BYTE_USER)
    public = nkeys.from_seed(bytearray(seed)).public_key.decode()
    (tmp_path / "user.nk").write_bytes(bytes(seed))
    alone = Installed(tmp_path, "nats")
    with NatsServer(tmp_path / "server", config=f"authorization {{ users: [{{ nkey: {public} }}] }}") as server:
        url = f"{server.url}?nkey={tmp_path / 'user.nk'}"
        (tmp_path / "cluster.toml").write_text(f'broker = "{url}"\nnodes.root = {{}}\n')
        serving = alone.start("serve", "--config", "cluster.toml")
        try:
            alone.seriatim("pub", "orders", "order 1", "--url", url, "--timeout", "60")
            said = alone.seriatim("sub", "orders", "--start", "first", "--count", "1", "--url", url, "--timeout", "60")
            assert "order 1" in said
        finally:
            serving.terminate()
            serving.wait(READY_S)


@pytest.mark.long
def test_embedded_alone(tmp_path: Path) -> None:
    alone = Installed(tmp_path, "embedded")
    ready = tmp_path / "ready.json"
    up = alone.start("up", "--port", "0", "--ready-file", ready)
    try:
        wait(lambda: ready.exists() or up.poll() is not None, "seriatim up is ready", READY_S)
        url = json.loads(ready.read_text())["url"]
        alone.seriatim("pub", "orders", "order 1", "--url", url, "--timeout", "60")
        said = alone.seriatim("sub", "orders", "--start", "first", "--count", "1", "--url", url, "--timeout", "60")
        assert "order 1" in said
    finally:
        up.terminate()
        up.wait(READY_S)
    alone.seriatim("demo", "--seconds", "2", "--no-spark")


@pytest.mark.long
def test_fast_alone(tmp_path: Path) -> None:
    program = """
import asyncio
from seriatim.runtime.loop import run

async def kind():
    return type(asyncio.get_running_loop()).__module__

print(run(kind()))
"""
    assert Installed(tmp_path, "fast").python(program).startswith("uvloop")


# The archive that a cluster would have left, made without one. The tests are only read; the product is the installed.
ARCHIVE = """
from pathlib import Path
from tests.pipeline.archives import archived, with_events
from seriatim.audit import read_history
from seriatim.pipeline.spark.session import SparkOptions, spark_session

with spark_session(SparkOptions(master="local[2]", memory="1g")) as spark:
    history = read_history(Path("run.csv"))
    archived(spark, history, Path("lake"))
    with_events(spark, history, Path("lake"))
"""


@pytest.mark.long
def test_spark_alone(tmp_path: Path) -> None:
    """Audit, plan, report, workload, archive and replay; a broker needs the extra of that broker, and is told so."""
    alone = Installed(tmp_path, "spark")
    size = ("--subscribers", "20", "--topics", "5", "--held", "3")
    alone.seriatim("workload", "deliveries", "--out", "made", "--events", "200", *size)
    assert "tno                 valid" in alone.seriatim("audit", "made", "--guarantee", "tno", "--engine", "spark")
    alone.seriatim("report", "made", "--out", "made.html", "--png", "figures")
    alone.seriatim("workload", "subscriptions", "--out", "work", "--sites", "2", *size)
    places = ("--rates", "work/rates", "--sites", "work/sites", "--node", "a=site1", "--node", "b=site2")
    alone.seriatim("plan", "work/subscriptions", "--out", "plan", *places)
    alone.seriatim("report", "plan", "--out", "plan.html")
    (tmp_path / "run.csv").write_text(ROWS)
    alone.python(ARCHIVE, PYTHONPATH=str(REPOSITORY))
    assert "tno                 invalid" in alone.seriatim("audit", "lake", "--guarantee", "tno", code=1)
    shown = alone.seriatim("replay", "lake", "--subscriber", "s1", "--json")
    assert [json.loads(line)["event_id"] for line in shown.splitlines()] == ["a", "b"]
    done = subprocess.run(
        [str(alone.bin / "seriatim"), "archive", "--out", "lake", "--checkpoint", "state"],
        capture_output=True,
        text=True,
        env=alone.environment,
        cwd=alone.folder,
    )
    assert done.returncode == 2 and 'pip install "seriatim[nats]"' in done.stderr, done.stderr


DELTA = """
import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

rows = {"subscriber": ["s1", "s2"], "position": [0, 0], "event_id": ["a", "a"], "topic": ["A", "A"]}
write_deltalake("log", pa.table(rows))
DeltaTable("log").delete("subscriber = 's2'")
"""


@pytest.mark.long
def test_delta_alone(tmp_path: Path) -> None:
    alone = Installed(tmp_path, "delta")
    alone.python(DELTA)
    assert "1 delivery to 1 subscriber" in alone.seriatim("audit", "log", "--guarantee", "tno")


@pytest.mark.long
def test_pipelines_alone(tmp_path: Path) -> None:
    alone = Installed(tmp_path, "pipelines")
    rows = [{"subscriber": s, "position": 0, "event_id": "a", "topic": "A"} for s in ("s1", "s2")]
    (tmp_path / "live").mkdir()
    (tmp_path / "live" / "rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    alone.seriatim("pipeline", "project", "--input", "live/")
    with turn("spark-pipelines"):  # it always takes the same port
        subprocess.run(
            [str(alone.bin / "spark-pipelines"), "run"],
            check=True,
            env={**alone.environment, "SPARK_CONF_DIR": str(tmp_path / "project" / "conf")},
            cwd=tmp_path / "project",
            timeout=COMMAND_S,
        )
