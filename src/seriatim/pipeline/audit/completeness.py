"""Is anything missing? What `check_completeness` says, at scale: by counting, without a list of what was owed.

All events of a topic are ranked by their place (number and index). Then what a subscription was owed is a range of
ranks, and what is missing is the difference of two counts. Which one is missing first shows where the ranks received
stop being consecutive.
"""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from seriatim.pipeline.audit.columns import (
    LogTables,
    delivery_json,
    publication_json,
    subscription_json,
    with_hashes,
)
from seriatim.pipeline.audit.doubts import doubts
from seriatim.pipeline.audit.integrity import shown
from seriatim.pipeline.audit.keep import kept

ENDLESS = 1 << 62  # above every index
INDEX_BITS = 20
PLACE = "struct<number: bigint, index: bigint>"
OWN = ("run", "subscriber", "topic", "since", "until", "start", "end")  # of a subscription, in the order of sorting


def different(log: LogTables, runs: DataFrame, salt: int) -> DataFrame:
    """The subscriptions of these runs, each once: q, OWN, s, t, and how many `times` the log has it."""
    rows = log.subscriptions.join(runs, "run", "left_semi").groupBy(*OWN).agg(F.count(F.lit(1)).alias("times"))
    # A null is passed over by the hash, so it gets a value that no count has.
    told = (F.coalesce(F.col(name), F.lit(-1)) for name in OWN[3:])
    own = F.xxhash64(F.lit(salt), *(F.col(name) for name in OWN[:3]), *told)
    return with_hashes(rows.withColumn("q", own), salt, s="subscriber", t="topic")


def not_subscribed(log: LogTables, got: DataFrame, subscriptions: DataFrame, runs: DataFrame, salt: int) -> DataFrame:
    """Doubts about what was received of topics that no subscription tells of."""
    strange = got.select("s", "t").join(subscriptions.select("s", "t"), ["s", "t"], "left_anti")
    rows = with_hashes(log.deliveries, salt, s="subscriber", t="topic").join(strange, ["s", "t"])
    rows = rows.join(runs, "run", "left_semi").select("run", "subscriber", "topic").distinct()
    reason = F.concat("subscriber", F.lit(", topic "), "topic", F.lit(": no subscription tells what was owed"))
    return doubts(rows, "completeness", 1, "subscriber", "topic", reason=reason)


def voids_known(publications: DataFrame) -> DataFrame:
    """Topics with publications: t, and whether all have a number, so that any other number never became an event."""
    return publications.groupBy(F.col("b").alias("t")).agg(F.min(F.col("number").isNotNull()).alias("are_known"))


def place_of(number: str = "number", index: str = "index") -> Column:
    return F.when(F.col(number).isNotNull(), F.struct(F.col(number), F.col(index).cast("long")).cast(PLACE))


def with_places(rows: DataFrame, all_events: DataFrame, has_publications: bool) -> DataFrame:
    """Deliveries as (s, t, p, e, place): the row's own number, or else that of its publication."""
    if not has_publications:
        return rows.select("s", "t", "p", "e", place_of().alias("place"))
    made = all_events.filter("published_place is not null").select(
        "e", F.col("published_place").cast(PLACE).alias("made")
    )
    numbered = rows.filter("number is not null").select("s", "t", "p", "e", place_of().alias("place"))
    others = rows.filter("number is null").join(made, "e", "left")
    return numbered.unionByName(others.select("s", "t", "p", "e", F.col("made").alias("place")))


def received(placed: DataFrame) -> DataFrame:
    """Of each subscriber and topic: first and final position, rows, rows with a place, lowest and highest place."""
    number, index = F.col("place")["number"], F.col("place")["index"]
    # A place as one number, so that groups are hashed and not sorted; what does not fit is counted by `stays` instead.
    fits = number.between(0, (1 << (62 - INDEX_BITS)) - 1) & index.between(0, (1 << INDEX_BITS) - 1)
    packed = F.when(fits, F.shiftleft(number, INDEX_BITS).bitwiseOR(index))
    found = placed.groupBy("s", "t").agg(
        F.min("p").alias("first"),
        F.max("p").alias("final"),
        F.count(F.lit(1)).alias("rows"),
        F.count("place").alias("numbered"),
        F.count(packed).alias("packed"),
        F.min(packed).alias("lowest"),
        F.max(packed).alias("highest"),
    )
    return found.withColumns({name: _unpacked(name) for name in ("lowest", "highest")})


def _unpacked(name: str) -> Column:
    number = F.shiftright(name, INDEX_BITS).alias("number")
    index = F.col(name).bitwiseAND(F.lit((1 << INDEX_BITS) - 1)).alias("index")
    return F.when(F.col(name).isNotNull(), F.struct(number, index).cast(PLACE))


def ranked(all_events: DataFrame) -> DataFrame:
    """The places of each topic: t, place, e, rank, numbers (so many different ones up to here), filled.

    `filled` counts the indices that there would be up to here if every message had all below its highest.
    """
    told = all_events.select("e", "t", F.coalesce("published_place", "low").cast(PLACE).alias("place"))
    places = told.filter("place is not null").groupBy("t", "place").agg(F.min("e").alias("e"))
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


def stays(subscriptions: DataFrame, got: DataFrame, placed: DataFrame, repeats: DataFrame | None) -> DataFrame:
    """Each different subscription with what was received in it: rows, numbered, lowest, highest, inside, at_end.

    `inside` counts the different places above its start and up to its end; `at_end` is the highest place of the number
    that it ended with. Where it covers all that was received of the topic, above its start, the counts are known.
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
    both = both.withColumn("is_simple", F.coalesce(simple, F.lit(False)))
    counts = ("rows", "numbered", "lowest", "highest", "inside", "at_end")
    counted_easily = both.filter("is_simple").select(
        "q",
        F.coalesce("rows", F.lit(0)).alias("rows"),
        F.coalesce("numbered", F.lit(0)).alias("numbered"),
        "lowest",
        "highest",
        F.coalesce("numbered", F.lit(0)).alias("inside"),
        F.lit(None).cast(PLACE).alias("at_end"),
    )
    hard = both.filter("not is_simple").select("q", "s", "t", "since", "until", "start", "end")
    within = in_stay(hard, placed)
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
    no_rows = hard.select("q").join(counted, "q", "left").fillna(0, ["rows", "numbered", "inside"])
    known = counted_easily.select("q", *counts).unionByName(no_rows.select("q", *counts))
    return subscriptions.join(known, "q")


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
    found = line.withColumns(
        {name: F.coalesce(F.last(name, ignorenulls=True).over(up_to), F.lit(0)) for name in nothing}
    ).filter("kind = 1")
    low = found.select("q", F.col("place").alias("after"), *(F.col(name).alias(f"{name}_before") for name in nothing))
    high = found.select("q", F.col("place").alias("last"), *nothing)
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
    """Those of which something is missing, with the first place that is: `gone`, and its event `gone_e`."""
    lacking = judged.filter("missing > 0")
    keys = lacking.select("q", "s", "t", "since", "until", "rank_before", "rank")
    rows = in_stay(keys, placed.filter("place is not null").select("s", "t", "p", "place"))
    ranks = places.select("t", "place", F.col("rank").alias("place_rank"))
    got = rows.join(ranks, ["t", "place"]).filter("place_rank > rank_before and place_rank <= rank")
    got = got.select("q", "rank_before", "place_rank").distinct()
    nth = F.row_number().over(Window.partitionBy("q").orderBy("place_rank"))
    due = got.withColumn("due", F.col("rank_before") + nth).filter("place_rank > due")
    first = due.groupBy("q").agg(F.min("due").alias("due"))
    told = lacking.join(first, "q", "left").withColumn(
        "gone_rank", F.coalesce("due", F.col("rank_before") + F.col("inside") + 1)
    )
    names = places.select(
        "t", F.col("rank").alias("gone_rank"), F.col("place").alias("gone"), F.col("e").alias("gone_e")
    )
    return told.join(names, ["t", "gone_rank"])


def stay_doubts(judged: DataFrame, lacking: DataFrame, places: DataFrame, voids: DataFrame | None) -> list[DataFrame]:
    """The doubts about each subscription, in the reference auditor's order. `lacking`: where a row may be missing."""
    who = F.concat("subscriber", F.lit(", topic "), "topic")
    numbered = judged.filter("rows = numbered")

    def told(rows: DataFrame, kind: int, text: Column) -> DataFrame:
        order = ("subscriber", "topic", "since", "until", "start", "end", "kind")
        return doubts(
            rows.withColumn("kind", F.lit(kind)), "completeness", 2, *order, reason=F.concat(who, F.lit(": "), text)
        )

    cut = numbered.filter("start is null and (begun > 0 or rows = 0)")
    no_publications = numbered.withColumn("are_known", F.lit(None).cast("boolean"))
    known = numbered.join(voids, "t", "left") if voids is not None else no_publications
    tails = places.select("t", (F.col("rank") - 1).alias("rank"), F.col("place").alias("tail"))
    tail = numbered.filter("until is null and has_tail").join(tails, ["t", "rank"])
    return [
        told(judged.filter("rows > numbered"), 0, F.lit("events without a number, so a gap would not show")),
        told(cut, 1, F.lit("the cut is not recorded, so the first event owed is not known")),
        told(lacking, 2, F.concat(F.lit("number "), shown_place("gone"), F.lit(" may be in a row that is missing"))),
        told(known.filter("not are_known"), 3, F.lit("publications without a number, so a gap may not show")),
        told(
            known.filter("are_known is null and has_holes"),
            4,
            F.lit("numbers that no row tells of may be events or voids"),
        ),
        told(tail, 5, F.concat(F.lit("number "), shown_place("tail"), F.lit(" not notified yet, late or lost"))),
    ]


def shown_place(name: str) -> Column:
    return shown(f"{name}.number", f"{name}.index")


def gaps(log: LogTables, gone: DataFrame, placed: DataFrame, limit: int, salt: int) -> DataFrame:
    """What was never notified though owed: all of it counted, the first subscriptions of each run shown."""
    gone = gone.withColumn("again", F.explode(F.sequence(F.lit(1), F.col("times"))))
    counted = gone.groupBy("run").agg(F.sum("missing").alias("count"))
    order = Window.partitionBy("run").orderBy(*OWN[1:])
    first = kept(gone.withColumn("nth", F.row_number().over(order)).filter(F.col("nth") <= limit))
    shown_count = first.groupBy("run").agg(F.sum("missing").alias("shown"))
    rest = counted.join(shown_count, "run").select(
        "run",
        F.lit("gap").alias("name"),
        (F.col("count") - F.col("shown")).alias("count"),
        F.lit(0).alias("phase"),
        F.lit(None).cast("string").alias("subscriber"),
        F.lit(None).cast("long").alias("position"),
        F.lit(None).cast("string").alias("tie"),
        F.lit(None).cast("string").alias("sentence"),
        F.lit(None).cast("array<string>").alias("witness"),
    )
    until = F.when(F.col("last_is_got"), shown_place("last")).otherwise(F.col("last.number").cast("string"))
    what = F.concat("event_id", F.lit(" (number "), shown_place("gone"), F.lit(" of topic "), "topic", F.lit(")"))
    sentence = F.concat(
        "subscriber",
        F.lit(" held the topic but was never notified of "),
        what,
        F.lit(", though owed up to number "),
        until,
    )
    told = first.join(_proofs(log, first, salt), "gone_e").join(_later(log, first, placed, salt), "q", "left")
    witness = F.filter(F.array(subscription_json(), "proof", "later"), lambda row: row.isNotNull())
    return rest.unionByName(
        told.select(
            "run",
            F.lit("gap").alias("name"),
            F.col("missing").alias("count"),
            F.lit(0).alias("phase"),
            "subscriber",
            F.col("nth").cast("long").alias("position"),
            F.col("event_id").alias("tie"),
            sentence.alias("sentence"),
            witness.alias("witness"),
        )
    )


def _proofs(log: LogTables, first: DataFrame, salt: int) -> DataFrame:
    """The row that shows that what is missing is an event: gone_e, event_id, proof."""
    wanted = first.select(F.col("gone_e").alias("e")).distinct()
    rows = with_hashes(log.deliveries, salt, e="event_id").join(wanted, "e").filter("number is not null")
    claims = rows.select(
        "e", "event_id", F.lit(1).alias("phase"), "subscriber", "position", delivery_json().alias("proof")
    )
    if log.has_publications:
        made = with_hashes(log.publications, salt, e="event_id").join(wanted, "e").filter("number is not null")
        claims = claims.unionByName(
            made.select(
                "e",
                "event_id",
                F.lit(0).alias("phase"),
                F.lit(None).cast("string").alias("subscriber"),
                F.lit(None).cast("long").alias("position"),
                publication_json().alias("proof"),
            )
        )
    order = F.struct("phase", "subscriber", "position", "proof")
    return claims.groupBy(F.col("e").alias("gone_e"), "event_id").agg(F.min(order)["proof"].alias("proof"))


def _later(log: LogTables, first: DataFrame, placed: DataFrame, salt: int) -> DataFrame:
    """The row of the last event that was owed and notified: q, later."""
    keys = first.filter("last_is_got").select("q", "s", "t", "since", "until", "last")
    rows = in_stay(keys, placed.filter("place is not null")).filter("place = last")
    at = rows.groupBy("q", "s").agg(F.max(F.struct("p", "e")).alias("at"))
    at = at.select("q", "s", F.col("at.p").alias("position"), F.col("at.e").alias("e"))
    full = with_hashes(log.deliveries, salt, s="subscriber", e="event_id")
    return full.join(at, ["s", "position", "e"]).groupBy("q").agg(F.max(delivery_json()).alias("later"))
