"""From what a user names to sections of a report: what it is, and how it is read. Needs no Spark.

A source is a folder of logs or a file of deliveries (a run), what `seriatim audit --json` printed, a folder of
measurements, or a folder of a plan. Small runs are read and judged in this process; which ones are not small is decided
here too, and `sources_on_spark.py` does those.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal, TypeAlias

import msgspec

from seriatim.audit import ANOMALIES, Anomaly, Verdict, audit, read_history
from seriatim.model import Delivery, InputError, Publication, Subscription
from seriatim.order import GUARANTEES, implied_by
from seriatim.pipeline.report.figures import figures_of
from seriatim.pipeline.report.measurements import MEASUREMENTS, has_measurements
from seriatim.pipeline.report.pages import Judgement, RunSection
from seriatim.pipeline.report.plans import PLAN_FILES

Kind: TypeAlias = Literal["run", "audit", "sweep", "plan"]

LARGE_BYTES = 64 << 20  # logs above this are Spark's: about 400,000 deliveries, 20 s in this process
ROWS = {"delivery": Delivery, "publication": Publication, "subscription": Subscription}
WHAT = (
    "give a folder with deliveries, a .jsonl or .csv file of deliveries, the output of `seriatim audit --json`, "
    "a folder with measurements or a folder with plan.toml"
)


def kind_of(source: str) -> Kind:
    """What a source is, by the names of its files."""
    if "://" in source:
        return "run"
    path = Path(source)
    if path.is_dir():
        if any(file.name.partition(".")[0] == "deliveries" for file in path.iterdir()):
            return "run"
        if any((path / name).is_file() for name in PLAN_FILES):
            return "plan"
        if has_measurements(path):
            return "sweep"
        if any(path.glob("*.parquet")) or any(path.glob("*.jsonl")):
            return "run"
        raise InputError(source, "nothing in this folder can be reported", WHAT)
    if not path.exists():
        raise InputError(source, "no such file or folder", "correct the path")
    if path.name.startswith(f"{MEASUREMENTS}."):
        return "sweep"
    if path.name in PLAN_FILES:
        return "plan"
    if path.suffix == ".json":
        return "audit"
    return "run"


def is_large(source: str) -> bool:
    """Whether a run is one for Spark: not JSON lines or CSV on this machine, or many of them."""
    path = Path(source)
    if "://" in source or not path.exists():
        return True
    if path.is_dir():
        if not (path / "deliveries.jsonl").is_file():
            return True
        return sum(file.stat().st_size for file in path.glob("*.jsonl")) > LARGE_BYTES
    return path.suffix not in (".jsonl", ".csv") or path.stat().st_size > LARGE_BYTES


def name_of(source: str) -> str:
    """What a section is called: the last part of its path."""
    return source.rstrip("/").rpartition("/")[2] or source


def read_run(source: str, guarantees: Iterable[str] = GUARANTEES, limit: int = 10) -> RunSection:
    """A small run: read, judged and counted in this process."""
    history = read_history(source)
    report = audit(history, limit)
    return RunSection(
        name=name_of(source), judgement=restricted(Judgement.of(report), guarantees), figures=figures_of(history)
    )


def restricted(judgement: Judgement, guarantees: Iterable[str]) -> Judgement:
    """Only what was asked for, and the anomalies that break it."""
    asked = [name for name in judgement.verdicts if name in set(guarantees)]
    below = frozenset[str]().union(*(implied_by(name) for name in asked))
    return msgspec.structs.replace(
        judgement,
        verdicts={name: judgement.verdicts[name] for name in asked},
        anomalies=tuple(one for one in judgement.anomalies if ANOMALIES.get(one.name, "") in below),
    )


def read_audit(source: str, guarantees: Iterable[str] = GUARANTEES) -> RunSection:
    """What `seriatim audit --json` printed."""
    raw = _json(source)
    fix = "give what `seriatim audit --json` printed"
    if not isinstance(raw, dict) or "verdicts" not in raw or "anomalies" not in raw:
        raise InputError(source, "not the result of an audit", fix)
    try:
        judgement = Judgement(
            verdicts={
                name: msgspec.convert({"guarantee": name, **verdict}, Verdict)
                for name, verdict in raw["verdicts"].items()
            },
            anomalies=tuple(_anomaly(one) for one in raw["anomalies"]),
            **{
                name: msgspec.convert(raw.get(name, default), type_)
                for name, type_, default in (
                    ("counts", dict[str, int], {}),
                    *((name, int, 0) for name in ("deliveries", "subscribers", "events", "shared", "out_of_order")),
                )
            },
        )
    except (msgspec.ValidationError, KeyError, AttributeError, TypeError) as error:
        raise InputError(source, f"not the result of an audit ({error})", fix) from None
    return RunSection(name=name_of(source), judgement=restricted(judgement, guarantees))


def _anomaly(raw: dict[str, Any]) -> Anomaly:
    rows = tuple(msgspec.convert(row, ROWS[row["row"]]) for row in raw["witness"])
    return Anomaly(msgspec.convert(raw["name"], str), msgspec.convert(raw["sentence"], str), rows)


def _json(source: str) -> Any:
    try:
        return json.loads(Path(source).read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(source, error.strerror or "cannot be read", "check the path and its permissions") from None
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise InputError(source, f"not JSON ({error})", "give what `seriatim audit --json` printed") from None
