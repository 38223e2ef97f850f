"""Options of an audit on Spark: memory bounds and methods. They can change a verdict only to unknown."""

from msgspec import Struct

from seriatim.model import InputError


class AuditOptions(Struct, frozen=True, kw_only=True):
    """Sizes are rows of slim tables: some 50 bytes each in the JVM and some 500 in a Python worker."""

    keys_max: int = 3_000_000  # events whose keys every task gets, some 50 bytes each; above, rows go to where keys are
    file_keys_max: int = 16_000_000  # the same where tasks read the files by themselves, 20 bytes each
    order_rows_max: int = 20_000_000  # rows of an order log that every task gets, 16 bytes each; above, topic by topic
    suspect_rows_max: int = 10_000_000  # of subscribers that a certificate did not clear, 33 bytes each, on the driver
    stretches_max: int = 5_000_000  # of subscribers in files, 48 bytes each, that the driver joins
    split_rows: int = 2_000_000  # of a file that one task reads, about
    chunk_rows: int = 200_000  # … of them at a time
    cuts_max: int = 2_000_000  # events in disorder whose cuts the driver joins; above, blocks are coarse
    block_rows: int = 500_000  # about this many rows are untangled by one task
    block_rows_max: int = 2_000_000  # a block above this is cut again, coarsely
    task_rows_max: int = 20_000_000  # a block that cannot be cut and is above this is not judged: unknown
    tangle_rows_max: int = 5_000_000  # a tangle above this is not explained: unknown
    undivided_rows: int = 200_000  # a log up to this is one part of every table: nothing is moved, all is one task
    rounds: int = 6  # in which the events near a coarse cut may settle on one side of it
    salt: int = 0  # of the hashes that stand for ids; another one if two ids collide

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            if name not in ("undivided_rows", "salt") and getattr(self, name) < 1:
                raise InputError(name, f"{getattr(self, name)} is too small", "give at least 1")
