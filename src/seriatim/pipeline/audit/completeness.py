"""Is anything missing? The results of `check_completeness`, at scale: by counting, without a list of the events that
subscribers must get.

All events of a topic are ranked by their place (number and index). Then the events that a subscription must get are a
range of ranks, and the number of missing ones is the difference of two counts. Which one is missing first shows where
the ranks received stop being consecutive.
"""

from collections.abc import Iterable

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from seriatim.pipeline.audit.columns import (
    ENDLESS,
    PLACE,
    LogTables,
    pack_place,
    place_of,
    row_of,
    shown_place,
    told,
    unpack_place,
    with_hashes,
)
from seriatim.pipeline.audit.events import places_in
from seriatim.pipeline.audit.integrity import found, numbered
from seriatim.pipeline.audit.keep import kept
from seriatim.pipeline.audit.reporting import doubts

# Of a subscription, in the order of sorting: names, counts, and the filter.
NAMES = ("run", "subscriber", "topic")
OWN = (*NAMES, "since", "until", "start", "end", "where")


def different(log: LogTables, runs: DataFrame, salt: int) -> DataFrame:
    """The subscriptions of these runs, each once: q, OWN, s, t, and how many `times` the log has it."""
    rows = log.subscriptions.join(runs, "run", "left_semi").groupBy(*OWN).agg(F.count(F.lit(1)).alias("times"))
    # A null is passed over by the hash, so it gets a value that no count, and no filter, has.
    counts = (F.coalesce(F.col(name), F.lit(-1)) for name in OWN[3:7])
    own = F.xxhash64(F.lit(salt), *(F.col(name) for name in NAMES), *counts, F.coalesce("where", F.lit("")))
    return with_hashes(rows.withColumn("q", own), salt, s="subscriber", t="topic")


def not_subscribed(log: LogTables, unclear: DataFrame, runs: DataFrame, salt: int) -> DataFrame:
    """Doubts about what was received of topics that no subscription tells of; `unclear` (s, t, spans) has them."""
    strange = unclear.filter(F.size("spans") == 0).select("s", "t")
    rows = with_hashes(log.deliveries, salt, s="subscriber", t="topic").join(strange, ["s", "t"])
    rows = rows.join(runs, "run", "left_semi").select("run", "subscriber", "topic").distinct()
    reason = told("{subscriber}, topic {topic}: no subscription says which events were owed")
    return doubts(rows, "completeness", 1, "subscriber", "topic", reason=reason)


def received(
    rows: DataFrame, all_events: DataFrame, all_totals: DataFrame, need_publications: bool
) -> tuple[DataFrame, DataFrame]:
    """Deliveries as (s, t, p, e, place), and what each subscriber got of each topic.

    A place is the row's own number, or else that of its publication. Of a topic: s, t, first and final position, rows,
    rows with a place (`numbered`), lowest and highest place.
    """
    own = ("s", "t", "p", "e", place_of().alias("place"))
    if not need_publications:  # then the pass that made the totals has told it already
        placed, got = rows.select(*own), all_totals.withColumnRenamed("n", "rows").drop(*NAMES, "tagged")
    else:
        made = all_events.filter("published_place is not null").select(
            "e", F.col("published_place").cast(PLACE).alias("made")
        )
        others = rows.filter("number is null").join(made, "e", "left")
        others = others.select("s", "t", "p", "e", F.col("made").alias("place"))
        placed = rows.filter("number is not null").select(*own).unionByName(others)
        packed = pack_place(F.col("place")["number"], F.col("place")["index"])
        counted = placed.groupBy("s", "t").agg(
            F.min("p").alias("first"),
            F.max("p").alias("final"),
            F.count(F.lit(1)).alias("rows"),
            F.count("place").alias("numbered"),
            *places_in(packed),
        )
        got = kept(counted)
    return placed, got.withColumns({name: unpack_place(name) for name in ("lowest", "highest")})


def ranked(all_events: DataFrame) -> DataFrame:
    """The places of each topic: t, place, e, rank, numbers (so many different ones up to here), filled.

    `filled` counts the indices that there would be up to here if every message had all below its highest.
    """
    known = all_events.select("e", "t", F.coalesce("published_place", "low").cast(PLACE).alias("place"))
    places = known.filter("place is not null").groupBy("t", "place").agg(F.min("e").alias("e"))
    up_to = Window.partitionBy("t").orderBy("place")
    before = F.lag("place").over(up_to)
    same = F.coalesce(before["number"] == F.col("place")["number"], F.lit(False))
    stepped = places.withColumns(
        {
            "is_new": (~same).cast("long"),
            "fills": F.col("place")["index"] + 1 - F.when(same, before["index"] + 1).otherwise(F.lit(0)),
        }
    )
    so_far = up_to.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    return stepped.select(
        "t",
        "place",
        "e",
        F.row_number().over(up_to).cast("long").alias("rank"),
        F.sum("is_new").over(so_far).alias("numbers"),
        F.sum("fills").over(so_far).alias("filled"),
    )


def with_ease(subscriptions: DataFrame, got: DataFrame, placed: DataFrame, repeats: DataFrame | None) -> DataFrame:
    """Each different subscription with what was received of its topic, and `is_simple`: the counts are its own.

    They are where it covers all that was received of the topic, above its start, each event once.
    """
    alone = Window.partitionBy("s", "t")
    both = subscriptions.withColumn("of_topic", F.count(F.lit(1)).over(alone)).join(got, ["s", "t"], "left")
    covers = (F.col("since") <= F.col("first")) & (F.col("until").isNull() | (F.col("final") < F.col("until")))
    above = F.col("start").isNull() | (F.col("lowest")["number"] > F.col("start")) | F.col("lowest").isNull()
    easy = covers & above & F.col("end").isNull() & (F.col("packed") == F.col("numbered"))
    simple = F.col("first").isNull() | ((F.col("of_topic") == 1) & easy)
    if repeats is not None:
        twice = placed.join(repeats.select("s", "e"), ["s", "e"], "left_semi").select("s", "t").distinct()
        both = both.join(twice.withColumn("is_repeated", F.lit(True)), ["s", "t"], "left")
        simple = simple & F.col("is_repeated").isNull()
    return both.withColumn("is_simple", F.coalesce(simple, F.lit(False)))


def stays(both: DataFrame, placed: DataFrame, are_simple: bool) -> DataFrame:
    """Each different subscription with what was received in it: rows, numbered, lowest, highest, inside, at_end.

    `inside` counts the different places above its start and up to its end; `at_end` is the highest place of the number
    that it ended with. `both` is from `with_ease`; if all of it is simple, no row is looked at.
    """
    own = ("q", *OWN, "times", "s", "t")
    counts = ("rows", "numbered", "lowest", "highest", "inside", "at_end")
    easy = both.filter("is_simple").fillna(0, ["rows", "numbered"])
    nowhere = F.lit(None).cast(PLACE).alias("at_end")
    counted_easily = easy.select(
        *own, "rows", "numbered", "lowest", "highest", F.col("numbered").alias("inside"), nowhere
    )
    if are_simple:
        return counted_easily
    hard = both.filter("not is_simple").select(*own)
    within = in_stay(hard.select("q", "s", "t", "since", "until", "start", "end"), placed)
    number = F.col("place")["number"]
    is_inside = (F.col("start").isNull() | (number > F.col("start"))) & (
        F.col("end").isNull() | (number <= F.col("end"))
    )
    counted = within.groupBy("q").agg(
        F.count(F.lit(1)).alias("rows"),
        F.count("place").alias("numbered"),
        F.min("place").alias("lowest"),
        F.max("place").alias("highest"),
        F.count_distinct(F.when(is_inside, F.col("place"))).alias("inside"),
        F.max(F.when(number == F.col("end"), F.col("place"))).alias("at_end"),
    )
    counted_closely = hard.join(counted, "q", "left").fillna(0, ["rows", "numbered", "inside"])
    return counted_easily.unionByName(counted_closely.select(*own, *counts))


def in_stay(subscriptions: DataFrame, placed: DataFrame) -> DataFrame:
    """The rows that came within each subscription."""
    rows = placed.join(subscriptions, ["s", "t"])
    return rows.filter((F.col("since") <= F.col("p")) & (F.col("until").isNull() | (F.col("p") < F.col("until"))))


def owed(all_stays: DataFrame, places: DataFrame) -> DataFrame:
    """What each subscription was owed: from rank `base` (not included) to rank `top`, and what is missing of it."""
    lowest, highest = F.col("lowest"), F.col("highest")
    begun = F.coalesce(F.col("start"), lowest["number"] - 1, F.lit(0))
    after = F.struct(begun.alias("number"), F.lit(ENDLESS).alias("index")).cast(PLACE)
    ended = F.struct(F.col("end").alias("number"), F.lit(ENDLESS).alias("index")).cast(PLACE)
    last = F.when(F.col("end").isNull(), F.coalesce(highest, after)).otherwise(F.coalesce(F.col("at_end"), ended))
    known = all_stays.withColumns({"begun": begun, "after": after, "last": last})
    known = known.withColumn(
        "last_is_got", F.when(F.col("end").isNull(), highest.isNotNull()).otherwise(F.col("at_end").isNotNull())
    )
    probes = known.select(
        "q", "t", F.explode(F.array("after", "last")).alias("place"), F.lit(1).alias("kind")
    ).distinct()
    marks = places.select(
        "t", "place", F.lit(0).alias("kind"), F.lit(None).cast("long").alias("q"), "rank", "numbers", "filled"
    )
    nothing = {name: F.lit(None).cast("long") for name in ("rank", "numbers", "filled")}
    line = marks.unionByName(probes.withColumns(nothing).select(*marks.columns))
    up_to = Window.partitionBy("t").orderBy("place", "kind").rowsBetween(Window.unboundedPreceding, Window.currentRow)
    probed = line.withColumns(
        {name: F.coalesce(F.last(name, ignorenulls=True).over(up_to), F.lit(0)) for name in nothing}
    ).filter("kind = 1")
    low = probed.select("q", F.col("place").alias("after"), *(F.col(name).alias(f"{name}_before") for name in nothing))
    high = probed.select("q", F.col("place").alias("last"), *nothing)
    ends = places.groupBy("t").agg(F.max("rank").alias("ranks"))
    whole = known.join(low, ["q", "after"]).join(high, ["q", "last"]).join(ends, "t", "left")
    count = F.greatest(F.col("rank") - F.col("rank_before"), F.lit(0))
    holes = (
        F.col("last")["number"] - F.col("begun") > F.greatest(F.col("numbers") - F.col("numbers_before"), F.lit(0))
    ) | (F.greatest(F.col("filled") - F.col("filled_before"), F.lit(0)) > count)
    return whole.withColumns(
        {
            "missing": count - F.col("inside"),
            "has_holes": holes,
            "has_tail": F.col("rank") < F.coalesce("ranks", F.lit(0)),
        }
    )


def with_first_missing(judged: DataFrame, placed: DataFrame, places: DataFrame) -> DataFrame:
    """The subscriptions that miss something, with the first missing place (`gone`) and its event (`gone_e`)."""
    lacking = judged.filter("missing > 0")
    keys = lacking.select("q", "s", "t", "since", "until", "rank_before", "rank")
    rows = in_stay(keys, placed.filter("place is not null").select("s", "t", "p", "place"))
    ranks = places.select("t", "place", F.col("rank").alias("place_rank"))
    got = rows.join(ranks, ["t", "place"]).filter("place_rank > rank_before and place_rank <= rank")
    got = got.select("q", "rank_before", "place_rank").distinct()
    nth = F.row_number().over(Window.partitionBy("q").orderBy("place_rank"))
    due = got.withColumn("due", F.col("rank_before") + nth).filter("place_rank > due")
    first = due.groupBy("q").agg(F.min("due").alias("due"))
    due_first = lacking.join(first, "q", "left").withColumn(
        "gone_rank", F.coalesce("due", F.col("rank_before") + F.col("inside") + 1)
    )
    names = places.select(
        "t", F.col("rank").alias("gone_rank"), F.col("place").alias("gone"), F.col("e").alias("gone_e")
    )
    return due_first.join(names, ["t", "gone_rank"])


# The possible doubts about a subscription, in the reference auditor's order, and their texts. Two need more.
MAY_BE_LOST, NOT_YET = 2, 5
STAY_DOUBTS: dict[int, tuple[str, str]] = {
    0: ("rows > numbered", "events without a number, so a gap would not be noticed"),
    1: (
        "rows = numbered and start is null and (begun > 0 or rows = 0)",
        "the cut is not recorded, so the first event owed is not known",
    ),
    MAY_BE_LOST: ("rows = numbered and missing > 0", "number {gone} may be in a row that is missing"),
    3: ("rows = numbered and not are_known", "publications without a number, so a gap may not be noticed"),
    4: ("rows = numbered and are_known is null and has_holes", "numbers that no row mentions may be events or voids"),
    NOT_YET: ("rows = numbered and until is null and has_tail", "number {tail} not notified yet, late or lost"),
}


def with_voids(judged: DataFrame, publications: DataFrame | None) -> DataFrame:
    """`are_known`: every publication to the topic has a number, so any other number never became an event.

    Null: nobody published to the topic.
    """
    if publications is None:
        return judged.withColumn("are_known", F.lit(None).cast("boolean"))
    known = publications.groupBy(F.col("b").alias("t")).agg(F.min(F.col("number").isNotNull()).alias("are_known"))
    return judged.join(known, "t", "left")


def stay_counts(judged: DataFrame) -> dict[int, int]:
    """How many subscriptions may be doubtful, by kind."""
    counted = judged.agg(
        *(F.count(F.when(F.expr(which), 1)).alias(f"d{kind}") for kind, (which, _) in STAY_DOUBTS.items())
    ).first()
    assert counted is not None
    return {kind: counted[f"d{kind}"] for kind in STAY_DOUBTS}


def stay_doubts(judged: DataFrame, torn: DataFrame, places: DataFrame, kinds: Iterable[int]) -> list[DataFrame]:
    """The doubts of these kinds. `torn`: where what is missing may be in a row that is."""
    order = ("subscriber", "topic", "since", "until", "start", "end", "kind")
    made = []
    for kind in kinds:
        which, text = STAY_DOUBTS[kind]
        rows = torn if kind == MAY_BE_LOST else judged.filter(which)
        if kind == NOT_YET:
            tails = places.select("t", (F.col("rank") - 1).alias("rank"), F.col("place").alias("tail"))
            rows = rows.join(tails, ["t", "rank"])
        rows = rows.withColumn("kind", F.lit(kind))
        reason = told("{subscriber}, topic {topic}: " + text, gone=shown_place("gone"), tail=shown_place("tail"))
        made.append(doubts(rows, "completeness", 2, *order, reason=reason))
    return made


def gaps(log: LogTables, gone: DataFrame, placed: DataFrame, limit: int, salt: int) -> DataFrame:
    """What was never notified though owed: all of it counted, the first subscriptions of each run shown."""
    gone = gone.withColumn("again", F.explode(F.sequence(F.lit(1), F.col("times"))))
    counted = gone.groupBy("run").agg(F.sum("missing").alias("count"))
    order = Window.partitionBy("run").orderBy(*OWN[1:])
    first = kept(gone.withColumn("nth", F.row_number().over(order)).filter(F.col("nth") <= limit))
    shown_count = first.groupBy("run").agg(F.sum("missing").alias("shown"))
    rest = counted.join(shown_count, "run").select(
        "run", F.lit("gap").alias("name"), (F.col("count") - F.col("shown")).alias("count"), F.lit(0).alias("phase")
    )
    sentence = told(
        "{subscriber} held the topic but was never notified of {event_id} (number {gone} of topic {topic}), "
        "though owed up to number {until}",
        gone=shown_place("gone"),
        until=F.when(F.col("last_is_got"), shown_place("last")).otherwise(F.col("last.number").cast("string")),
    )
    proven = first.join(_proofs(log, first, salt), "gone_e").join(_later(log, first, placed, salt), "q", "left")
    witness = F.filter(F.array(row_of("subscriptions"), "proof", "later"), lambda row: row.isNotNull())
    shown = found(proven.withColumn("position", F.col("nth")), "gap", sentence, witness, count=F.col("missing"))
    return shown.unionByName(rest, allowMissingColumns=True)


def _proofs(log: LogTables, first: DataFrame, salt: int) -> DataFrame:
    """The row that shows that what is missing is an event: gone_e, event_id, proof."""
    claims = numbered(log, first.select(F.col("gone_e").alias("e")).distinct(), salt)
    order = F.struct("phase", "subscriber", "position", "row")
    return claims.groupBy(F.col("e").alias("gone_e"), "event_id").agg(F.min(order)["row"].alias("proof"))


def _later(log: LogTables, first: DataFrame, placed: DataFrame, salt: int) -> DataFrame:
    """The row of the last event that was owed and notified: q, later."""
    keys = first.filter("last_is_got").select("q", "s", "t", "since", "until", "last")
    rows = in_stay(keys, placed.filter("place is not null")).filter("place = last")
    at = rows.groupBy("q", "s").agg(F.max(F.struct("p", "e")).alias("at"))
    at = at.select("q", "s", F.col("at.p").alias("position"), F.col("at.e").alias("e"))
    full = with_hashes(log.deliveries, salt, s="subscriber", e="event_id")
    return full.join(at, ["s", "position", "e"]).groupBy("q").agg(F.max(row_of("deliveries")).alias("later"))
