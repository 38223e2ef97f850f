"""From what a user names to sections of a report: what it is, and how it is read. Needs no Spark.

A source is a folder of logs or a file of deliveries (a run), what `seriatim audit --json` printed, a folder of
measurements, or a folder of a plan. Small runs are read and judged in this process; `sources_on_spark.py` reads others.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal, TypeAlias

import msgspec

from seriatim.audit import ANOMALIES, Anomaly, ColumnMapping, Verdict, audit, read_history
from seriatim.model import Delivery, InputError, Publication, Subscription
from seriatim.order import GUARANTEES, implied_by
from seriatim.pipeline.report.figures.memory import figures_of
from seriatim.pipeline.report.pages import Judgement, RunSection
from seriatim.pipeline.report.sources.plan import PLAN_FILES
from seriatim.pipeline.report.sources.sweep import MEASUREMENTS, has_measurements

Kind: TypeAlias = Literal["run", "audit", "sweep", "plan"]

ROWS = {"delivery": Delivery, "publication": Publication, "subscription": Subscription}
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
        if has_measurements(path):
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
    """Only what was asked for, and the anomalies that break it."""
    asked = [name for name in judgement.verdicts if name in set(guarantees)]
    below = frozenset[str]().union(*(implied_by(name) for name in asked))
    return msgspec.structs.replace(
        judgement,
        verdicts={name: judgement.verdicts[name] for name in asked},
        anomalies=tuple(one for one in judgement.anomalies if ANOMALIES.get(one.name, "") in below),
    )


def read_audit(source: str, guarantees: Iterable[str] = GUARANTEES) -> RunSection:
    """Read the output of `seriatim audit --json`."""
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
    notes = raw.get("notes", [])
    note = " ".join(f"{one}." for one in notes) if isinstance(notes, list) else ""
    return RunSection(name=name_of(source), judgement=restricted(judgement, guarantees), note=note)


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
