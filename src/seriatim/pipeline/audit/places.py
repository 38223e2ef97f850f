"""Where an event is in its topic: a number, and in a message of several events an index, as one column."""

from pyspark.sql import Column
from pyspark.sql import functions as F

PLACE = "struct<number: bigint, index: bigint>"
ENDLESS = 1 << 62  # above every index
INDEX_BITS = 20


def place_of(number: str = "number", index: str = "index") -> Column:
    return F.when(F.col(number).isNotNull(), F.struct(F.col(number), F.col(index).cast("long")).cast(PLACE))


def pack_place(number: Column, index: Column) -> Column:
    """A place as one number, so that groups are hashed and not sorted; null if it does not fit."""
    fits = number.between(0, (1 << (62 - INDEX_BITS)) - 1) & index.between(0, (1 << INDEX_BITS) - 1)
    return F.when(fits, F.shiftleft(number, INDEX_BITS).bitwiseOR(index))


def unpack_place(name: str) -> Column:
    number = F.shiftright(name, INDEX_BITS).alias("number")
    index = F.col(name).bitwiseAND(F.lit((1 << INDEX_BITS) - 1)).alias("index")
    return F.when(F.col(name).isNotNull(), F.struct(number, index).cast(PLACE))


def shown(number: str, index: str) -> Column:
    """A place as the reference auditor shows it."""
    text = F.col(number).cast("string")
    return F.when(F.col(index) > 0, F.concat(text, F.lit(" index "), F.col(index).cast("string"))).otherwise(text)


def shown_place(name: str) -> Column:
    return shown(f"{name}.number", f"{name}.index")
