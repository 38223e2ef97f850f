"""The auditor on Spark says what the reference auditor says, word for word, on logs with faults of every kind.

Many logs are judged at once, by run. `SERIATIM_LOGS=10000` judges so many; `SERIATIM_SEED=17` only that of seed 17.
"""

import os
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec import structs
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StringType, StructField, StructType

from seriatim.audit import ANOMALIES, Report, audit
from seriatim.audit.degree import ordering_degree as reference_degree
from seriatim.audit.lost import TABLES as LOST_TABLES
from seriatim.model import Delivery, History, InputError, Publication, Subscription
from seriatim.order import GUARANTEES
from seriatim.pipeline.audit import AuditOptions, SparkAudit, audit_tables, ordering_degree
from seriatim.pipeline.audit.keep import CONSTRAINTS, INTERPRETED, UNDIVIDED
from seriatim.pipeline.logs import Tables, history_of, tables_of
from seriatim.pipeline.logs import together as beside
from seriatim.pipeline.schemas import HISTORY
from tests.audit.peer_logs import logs_with_verdicts
from tests.audit.stories import tell
from tests.audit.test_against_oracle import cyclic_history, faulty_history
from tests.audit.test_ties import tied_history
from tests.audit.worlds import sound_history
from tests.pipeline.conftest import SMALL

LOGS = int(os.environ.get("SERIATIM_LOGS", "100"))
BATCH = 1000
SEEDS = [int(os.environ["SERIATIM_SEED"])] if "SERIATIM_SEED" in os.environ else list(range(LOGS // 3))

# A log of this size is one part of every table, and some steps are left out: so is a large one judged.
DIVIDED = AuditOptions(undivided_rows=0, keys_max=1)


# As files that tasks read by themselves, in small pieces.
IN_FILES = AuditOptions(undivided_rows=0, split_rows=500, chunk_rows=97)


@pytest.fixture
def small(spark: SparkSession) -> Iterator[SparkSession]:
    with settings(spark, SMALL):
        yield spark


@contextmanager
def settings(spark: SparkSession, values: Mapping[str, str]) -> Iterator[None]:
    before = {name: spark.conf.get(name) or "" for name in values}
    for name, value in values.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)


def together(spark: SparkSession, histories: Mapping[str, History]) -> Tables:
    """Many logs in the same tables, told apart by `run`; made at once, for there are thousands."""

    def frame(name: str) -> DataFrame:
        names = HISTORY[name].names
        schema = StructType([StructField("run", StringType(), False), *HISTORY[name].fields])
        rows = [
            (run, *(getattr(row, field) for field in names))
            for run, history in histories.items()
            for row in getattr(history, name)
        ]
        fields = to_arrow_schema(schema)
        arrays = [pa.array([row[i] for row in rows], type=field.type) for i, field in enumerate(fields)]
        return spark.createDataFrame(pa.Table.from_arrays(arrays, schema=fields), schema)

    lost = {run: history.lost for run, history in histories.items()}
    return Tables(frame("deliveries"), frame("publications"), frame("subscriptions"), lost=lost)


def as_files(tables: Tables, folder: Path) -> Tables:
    """The same tables, their deliveries in some Parquet files; the rows of a subscriber may be in two of them.

    Most lie in the order of positions, as logs are written; one in fifty has changed its place with another.
    """
    folder.mkdir()
    rows = tables.deliveries.toArrow()
    places, random = list(range(len(rows))), Random(len(rows))
    for _ in range(len(rows) // 100):
        one, other = random.randrange(len(rows)), random.randrange(len(rows))
        places[one], places[other] = places[other], places[one]
    rows = rows.take(places)
    for start in range(0, len(rows), 1500):
        path = folder / f"{start}.parquet"
        pq.write_table(rows.slice(start, 1500), path, row_group_size=250)
    deliveries = tables.deliveries.sparkSession.read.parquet(str(folder))
    return tables._replace(deliveries=deliveries, files=tuple(deliveries.inputFiles()))


def same(report: Report) -> tuple[object, ...]:
    """All that the two auditors must agree on: everything but the order that proves `acyclic`."""
    shown = [(anomaly.name, anomaly.sentence, anomaly.witness) for anomaly in report.anomalies]
    counted = (report.deliveries, report.subscribers, report.events, report.shared, report.out_of_order)
    return (report.verdicts, shown, report.counts, counted)


@pytest.mark.parametrize("count", [2, pytest.param(LOGS, marks=[pytest.mark.long, pytest.mark.timeout(3_600)])])
def test_agrees_with_the_reference_on_logs_with_faults_of_every_kind(
    small: SparkSession, tmp_path: Path, count: int
) -> None:
    """A few logs are judged as they are; many of them also as a large log, and as files."""
    met: Counter[tuple[str, str]] = Counter()
    peers = {f"peers: {name}": told for name, told in logs_with_verdicts().items()}
    named: Counter[str] = Counter()
    seeds = SEEDS[: count // 3]
    for start in range(0, len(seeds), BATCH):
        histories: dict[str, History] = {}
        told: dict[str, str] = {}
        for seed in seeds[start : start + BATCH]:
            histories[f"faulty {seed}"], _ = faulty_history(seed)
            histories[f"cyclic {seed}"] = cyclic_history(seed)
            histories[f"tied {seed}"] = tied_history(seed)
            told[f"story {seed}"] = list(ANOMALIES)[seed % len(ANOMALIES)]
            histories[f"story {seed}"] = sound_history(Random(seed))
            tell(told[f"story {seed}"], histories[f"story {seed}"], Random(seed))
        judged = histories if start else histories | {name: history for name, (history, _) in peers.items()}
        tables = together(small, judged)
        ways = {"as it is": audit_tables(tables).reports}
        deliveries: Mapping[str, Report] = {}
        if count > 12:
            ways["as a large log"] = audit_tables(tables, options=DIVIDED).reports
            files = as_files(tables, tmp_path / str(start))
            ways["as files"] = audit_tables(files, options=IN_FILES).reports
            # Publishers that say what they had seen are walked along by Spark. Without them, nearly all is in files.
            deliveries = audit_tables(Tables(files.deliveries, files=files.files), options=IN_FILES).reports
        for way, reports in ways.items():
            for name, (history, answer) in peers.items() if not start else ():
                assert reports[name].verdicts["causal"].answer == answer, name
                assert same(reports[name]) == same(audit(history)), f"{name} {way}"
            for name, anomaly in told.items():  # what was put in on purpose is called by its name, and nothing else is
                assert set(reports[name].counts) == {anomaly}, f"{name} {way}"
        for name, history in histories.items():
            expected = audit(history)
            replay = f"SERIATIM_SEED={name.split()[1]} replays {name}\n{history}"
            for way, reports in ways.items():
                assert same(reports[name]) == same(expected), f"{way}; {replay}"
            if name in deliveries:
                alone = audit(History(history.deliveries))
                assert same(deliveries[name]) == same(alone), f"deliveries alone, as files; {replay}"
            met.update((guarantee, verdict.answer) for guarantee, verdict in expected.verdicts.items())
            named.update(expected.counts)
    if len(seeds) >= 100:  # the logs are worth the test: every anomaly was met, every guarantee answered in every way
        assert set(ANOMALIES) <= set(named), named
        assert all(met[name, answer] for name in GUARANTEES for answer in ("valid", "invalid", "unknown")), met


@pytest.mark.long
@pytest.mark.parametrize("anomaly", [None, *ANOMALIES])
def test_steps_that_a_sound_log_needs_not_are_left_out(small: SparkSession, anomaly: str | None) -> None:
    """Together, logs with faults of every kind need every step of the audit. These need few, each fault others."""
    histories = {}
    for seed in range(20):
        history = sound_history(Random(seed))
        if anomaly is not None:
            tell(anomaly, history, Random(seed))
        histories[f"{anomaly} {seed}"] = history
    reports = audit_tables(together(small, histories)).reports
    for name, history in histories.items():
        assert same(reports[name]) == same(audit(history)), name


def shop() -> History:
    """Two subscribers that disagree, one that repeats, with everything known."""
    return History(
        deliveries=[
            Delivery("s1", 0, "a", "A", 1, notified_at=1.0),
            Delivery("s1", 1, "b", "B", 1, notified_at=2.0),
            Delivery("s2", 0, "b", "B", 1, notified_at=2.1),
            Delivery("s2", 1, "a", "A", 1, notified_at=2.2),
            Delivery("s2", 2, "b", "B", 1, notified_at=2.3),
        ],
        publications=[
            Publication("a", "A", "p", 0.5, sequence=0, seen=0, number=1),
            Publication("b", "B", "p", 0.6, sequence=1, seen=0, number=1),
        ],
        subscriptions=[Subscription(name, topic, 0, start=0) for name in ("s1", "s2") for topic in "AB"],
    )


def judged(spark: SparkSession, history: History, options: AuditOptions | None = None) -> SparkAudit:
    return audit_tables(tables_of(spark, history), options=options)


@pytest.mark.long
def test_one_log(small: SparkSession) -> None:
    history = shop()
    result = judged(small, history)
    assert same(result.report) == same(audit(history))
    assert {row["name"] for row in result.anomalies.collect()} == {
        "inversion",
        "duplicate",
        "fifo-inversion-across-topics",
    }


@pytest.mark.long
def test_the_session_is_left_as_it_was(spark: SparkSession) -> None:
    """Also what was not set before: other queries of the session would be planned as those of an audit."""
    names = [CONSTRAINTS, *UNDIVIDED, *INTERPRETED]
    with settings(spark, {"spark.sql.shuffle.partitions": "7"}):
        before = {name: spark.conf.get(name, None) for name in names}
        judged(spark, shop())
        assert {name: spark.conf.get(name, None) for name in names} == before
    assert before["spark.sql.shuffle.partitions"] == "7" and None in before.values()


@pytest.mark.long
def test_coarse_cuts_change_nothing(small: SparkSession) -> None:
    """As if nearly every row were in disorder and no block fitted a task."""
    options = AuditOptions(undivided_rows=0, keys_max=1, cuts_max=1, block_rows=20, block_rows_max=20, rounds=2)
    histories = {f"faulty {seed}": faulty_history(seed)[0] for seed in range(20)}
    histories |= {f"cyclic {seed}": cyclic_history(seed) for seed in range(20)}
    histories |= {f"tied {seed}": tied_history(seed) for seed in range(20)}
    reports = audit_tables(together(small, histories), options=options).reports
    for name, history in histories.items():
        assert same(reports[name]) == same(audit(history)), name


@pytest.mark.long
def test_files_with_too_many_subscribers_for_the_driver_are_walked_along_by_spark(
    small: SparkSession, tmp_path: Path
) -> None:
    history = faulty_history(3)[0]
    files = as_files(tables_of(small, History(history.deliveries)), tmp_path / "log")
    for stretches_max in (1, 1_000):
        options = structs.replace(IN_FILES, stretches_max=stretches_max)
        assert same(audit_tables(files, options=options).report) == same(audit(History(history.deliveries)))


@pytest.mark.long
def test_a_block_above_the_limit_is_unknown_and_not_valid(small: SparkSession) -> None:
    options = AuditOptions(block_rows=1, block_rows_max=1, task_rows_max=1, rounds=1)
    report = judged(small, History(shop().deliveries[:4]), options).report
    assert report.verdicts["tno"].answer == "unknown"
    assert "task_rows_max" in report.verdicts["tno"].reason


def test_bad_input_is_named(spark: SparkSession) -> None:
    tables = tables_of(spark, shop())
    with pytest.raises(InputError, match="limit"):
        audit_tables(tables, limit=0)
    with pytest.raises(InputError, match=r"deliveries\.event_id"):
        audit_tables(Tables(tables.deliveries.drop("event_id")))
    with pytest.raises(InputError, match="rounds"):
        AuditOptions(rounds=0)


@pytest.mark.long
@pytest.mark.parametrize("strange", [float(text) for text in ("nan", "inf", "-inf")])
@pytest.mark.parametrize("undivided_rows", [0, 1_000])
def test_a_time_that_is_no_number_is_not_known(small: SparkSession, strange: float, undivided_rows: int) -> None:
    history = shop()
    known = [structs.replace(row, notified_at=None, received_at=None) for row in history.deliveries]
    marked = [structs.replace(row, notified_at=strange, received_at=strange) for row in known]
    assert audit(History(known)).verdicts["tno"].answer == "invalid"
    report = audit_tables(tables_of(small, History(marked)), options=AuditOptions(undivided_rows=undivided_rows)).report
    assert same(report) == same(audit(History(known)))


def test_the_same_ordering_degree(small: SparkSession) -> None:
    for history in (shop(), cyclic_history(2), faulty_history(5)[0], History(shop().deliveries[:2])):
        expected = reference_degree(history.deliveries, history.publications)
        found = ordering_degree(tables_of(small, history))
        assert found.degree == (None if expected.degree is None else pytest.approx(expected.degree))
        assert (found.pairs, found.compared, found.displaced, found.displacement_max) == (
            expected.pairs,
            expected.compared,
            expected.displaced,
            expected.displacement_max,
        )


@pytest.mark.long
def test_what_filters_left_out_counts_as_received_for_both(small: SparkSession) -> None:
    """A row for each event in its turn, told or left out: so a gap shows under a filter, and order is judged."""
    histories: dict[str, History] = {}
    for seed in range(8):
        history, random = faulty_history(seed)[0] if seed % 2 else sound_history(Random(seed)), Random(seed)
        rows = [structs.replace(row, filtered=random.random() < 0.5) for row in history.deliveries]
        where = [structs.replace(row, where="price > 100") for row in history.subscriptions]
        histories[str(seed)] = History(rows, history.publications, where)
        assert audit(histories[str(seed)]).verdicts == audit(history).verdicts
    reports = audit_tables(together(small, histories)).reports
    for name, history in histories.items():
        assert same(reports[name]) == same(audit(history)), name


@pytest.mark.long
def test_what_is_known_to_be_gone_is_doubted_alike(small: SparkSession, tmp_path: Path) -> None:
    """Logs with and without faults, of which some rows are gone; each table alone, and all of them."""
    histories: dict[str, History] = {}
    for seed in range(32):
        history, random = faulty_history(seed)[0] if seed % 2 else sound_history(Random(seed)), Random(seed)
        gone = [table for place, table in enumerate(LOST_TABLES) if seed >> 1 & 1 << place]
        rows = {table: [row for row in getattr(history, table) if random.random() < 0.8] for table in gone}
        histories[str(seed)] = structs.replace(history, **rows, lost=dict.fromkeys(gone, seed))
    tables = together(small, histories)
    reports = audit_tables(tables).reports
    from_files = audit_tables(as_files(tables, tmp_path / "files"), options=IN_FILES).reports
    for name, history in histories.items():
        assert same(reports[name]) == same(from_files[name]) == same(audit(history)), f"{name}\n{history}"
    alone = tables_of(small, histories["15"])
    assert same(audit_tables(alone).report) == same(audit(histories["15"]))
    assert audit(histories["15"]).verdicts == audit(history_of(alone, 1_000) or History()).verdicts
    both = audit_tables(beside({"gone": alone, "whole": tables_of(small, shop())})).reports
    assert same(both["gone"]) == same(audit(histories["15"])) and same(both["whole"]) == same(audit(shop()))


@pytest.mark.long
def test_runs_that_no_time_explains(small: SparkSession, tmp_path: Path) -> None:
    """Then positions are looked at too, in a table that has been joined with the same rows before."""
    rows = [
        Delivery(name, position, event, "A", notified_at=float(-position))
        for name in ("s1", "s2")
        for position, event in enumerate("abcdef")
    ]
    tables = as_files(together(small, {"one": History(rows), "other": History(rows)}), tmp_path / "files")
    reports = audit_tables(Tables(tables.deliveries), options=AuditOptions(undivided_rows=0)).reports
    assert same(reports["one"]) == same(reports["other"]) == same(audit(History(rows)))
