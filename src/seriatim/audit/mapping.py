"""Logs of any origin: which of their columns is which field of a delivery, and what stands for the order.

No log of another system has our columns, and few have a position. `ColumnMapping` says what to take instead; the plain
reader (`reading.py`) and the Spark reader (`seriatim.pipeline.logs`) both follow it, so a verdict does not depend on
which of them read the log.

The order of a subscriber's notifications comes from one of three witnesses:

- a *position*: counts its notifications from 0, so that a missing row shows as a hole;
- a column to *order by*: a time or a counter. Rows of equal value share a position, and rows where the column and the
  lines of a file contradict each other (a clock that ran backwards) do too, unless the column is to be trusted: the
  auditor calls an order with shared positions `unknown`;
- the *lines* of a file that one subscriber wrote.

Without positions a row that is missing cannot be noticed; `notes` says so.
"""

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches

from msgspec import Struct, field

from seriatim.audit.rules import ROWS, check_columns, listed
from seriatim.model import Delivery, InputError, LogError

LINES = "line"  # order by the lines of a file

# The options of the command line, and the field each of them maps.
OPTIONS = {"subscriber": "--subscriber", "event_id": "--event", "topic": "--topic", "position": "--position"}
REQUIRED = ("subscriber", "event_id", "topic")
FIELDS = tuple(Delivery.__struct_fields__)

# What other systems call these, to suggest and never to assume.
ALSO_CALLED = {
    "subscriber": ("consumer", "client", "client_id", "host", "member", "instance", "worker", "receiver", "node"),
    "event_id": ("event", "id", "msg_id", "message_id", "uuid", "key", "offset"),
    "topic": ("stream", "channel", "subject", "queue", "exchange"),
    "position": ("seq", "sequence", "local_seq", "n"),
}


class ColumnMapping(Struct, frozen=True, kw_only=True):
    """`columns`: field → the columns that make it up, joined by `/` if there are several (topic, partition, offset).

    A field that is not mapped is read from the column of the same name. In JSON and Parquet a dot leads inside:
    `value.id`.
    """

    columns: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    order_by: str | None = None
    """A column, or `line`."""
    trust_order: bool = False
    """Where `order_by` and the lines of a file contradict each other, the column is right."""
    subscriber_from_file: bool = False
    """Each file is one subscriber's and is called what it is called."""
    topic_value: str | None = None
    """All events are of this topic."""
    run: str | None = None
    """Only rows of this run."""
    run_column: str = "run"

    def __post_init__(self) -> None:
        for name, columns in self.columns.items():
            if name not in FIELDS:
                near = get_close_matches(name, FIELDS, n=1)
                fix = f"did you mean {near[0]}?" if near else f"use one of {', '.join(FIELDS)}"
                raise InputError("mapping", f"{name!r} is not a field of a delivery", fix)
            if not columns or not all(columns):
                raise InputError("mapping", f"no column for {name}", "give the name of a column")
        if self.order_by is not None and "position" in self.columns:
            raise InputError("mapping", "both a position and a column to order by", "give one of them")
        if self.order_by == LINES and self.trust_order:
            raise InputError("mapping", "there is no column to trust when lines give the order", "give one of them")
        if self.subscriber_from_file and "subscriber" in self.columns:
            raise InputError("mapping", "the subscriber from a column and from the file's name", "give one of them")
        if self.topic_value is not None and "topic" in self.columns:
            raise InputError("mapping", "both a column and a value for the topic", "give one of them")

    @classmethod
    def of(cls, columns: Mapping[str, str | None], **options: object) -> "ColumnMapping":
        """From `field → "column"` or `field → "column,column"`; fields without one are left out."""
        split = {
            name: tuple(column.strip() for column in text.split(","))
            for name, text in columns.items()
            if text is not None
        }
        return cls(columns=split, **options)  # type: ignore[arg-type]  # checked by whoever has the options

    @property
    def is_foreign(self) -> bool:
        """Whether the log is not expected to have our own columns."""
        return self != ColumnMapping(run=self.run)

    def columns_of(self, name: str) -> tuple[str, ...]:
        """The columns that a field is made of."""
        return self.columns.get(name, (name,))

    def sources(self, there: Iterable[str], where: str, are_all: bool = True) -> dict[str, tuple[str, ...]]:
        """The fields that can be read from these columns. Raises an error that names the missing column and similar
        ones.

        `there` are the columns of the log. Of JSON they are those of its first lines, which need not be all: then
        every field that a row may lack is looked for in every row.
        """
        known = list(dict.fromkeys(there))
        needed = [name for name in REQUIRED if not self._is_given(name)]
        if self.order_by is None:
            needed.append("position")
        missing = [name for name in [*needed, *self.columns] if not self._has(name, known)]
        for name in dict.fromkeys(missing):
            raise self._missing(name, known, where)
        if self.order_by not in (None, LINES) and not _is_in(str(self.order_by), known):
            raise _no_column(str(self.order_by), "--order-by", known, where)
        fields = [name for name in FIELDS if not self._is_given(name) and (name != "position" or self.order_by is None)]
        return {name: self.columns_of(name) for name in fields if not are_all or self._has(name, known)}

    def sources_of(self, table: str, known: Sequence[str], where: str, are_all: bool) -> dict[str, tuple[str, ...]]:
        """The columns that each field of a table is read from. Only the columns of deliveries can be mapped."""
        if table == "deliveries":
            return self.sources(known, where, are_all)
        check_columns(table, known, where)
        return {name: (name,) for name in ROWS[table].__struct_fields__ if not are_all or name in known}

    def check_for_tables(self) -> None:
        """Refuse what only files can give: a table that is kept up to date knows no files and no lines."""
        if self.subscriber_from_file or (self.order_by is not None and not self.trust_order):
            fix = "give positions, or a column to order by that is to be trusted (--trust-order)"
            raise InputError("mapping", "tables know no files and no lines", fix)
        if self.run is not None:
            raise InputError("mapping", "tables have a verdict for each run", "leave --run out")

    def notes(self) -> list[str]:
        """The limits of the verdict that follow from the source of the order."""
        if self.order_by is None:
            return []
        what = "the lines of its file" if self.order_by == LINES else f"column {self.order_by}"
        return [f"positions were made from {what}: a row that is missing from the log cannot be noticed"]

    def _is_given(self, name: str) -> bool:
        return (name == "subscriber" and self.subscriber_from_file) or (
            name == "topic" and self.topic_value is not None
        )

    def _has(self, name: str, known: list[str]) -> bool:
        return all(_is_in(column, known) for column in self.columns_of(name))

    def _missing(self, name: str, known: list[str], where: str) -> LogError:
        option = OPTIONS.get(name, f"--map {name}=")
        column = next(column for column in self.columns_of(name) if not _is_in(column, known))
        if name in self.columns:
            return _no_column(column, option, known, where)
        other = f", or {_OTHERWISE[name]}" if name in _OTHERWISE else ""
        near = nearest(name, known)
        hint = f" (perhaps {option} {near})" if near else ""
        fix = f"say which one it is with {option}{hint}{other}; its columns are {listed(known)}"
        return LogError(where, f"no column {column}", fix)


_OTHERWISE = {
    "subscriber": "--subscriber-from file",
    "topic": "--topic-value",
    "position": "what gives the order with --order-by",
}


def _is_in(column: str, known: list[str]) -> bool:
    return column in known or ("." in column and column.partition(".")[0] in known)


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The column that is probably meant by a name, if there is one."""
    lower = {column.lower(): column for column in known}
    for word in (name, *ALSO_CALLED.get(name, ())):
        if word in lower:
            return lower[word]
    for word in (name, *ALSO_CALLED.get(name, ())):
        if near := get_close_matches(word, lower, n=1, cutoff=0.75):
            return lower[near[0]]
    return None


def _no_column(column: str, option: str, known: list[str], where: str) -> LogError:
    near = get_close_matches(column, known, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]}? " if near else ""
    return LogError(where, f"no column {column}, which {option} names", f"{hint}its columns are {listed(known)}")
