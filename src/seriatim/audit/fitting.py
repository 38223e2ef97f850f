"""From the cells of a line to a row of a table: `rules.py` in Python. `pipeline/logs/fitting.py` is the same on Spark.

A cell is text, or None. A row that does not fit raises `Misfit` with the words of the rules.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from typing import Any, TypeAlias

import msgspec

from seriatim.audit import rules
from seriatim.audit.mapping import LINES, ColumnMapping
from seriatim.audit.rules import Field

Cells: TypeAlias = Mapping[str, str | None]

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
BLANK = "".join(map(chr, (*range(33), 127)))  # what may stand around a number
_CONTEXT = Context(prec=100, rounding=ROUND_HALF_UP)
_UNIT = Decimal(1).scaleb(-rules.FRACTION_DIGITS)
_stamps = msgspec.json.Decoder(dict[str, int])


class Misfit(ValueError):
    """The problem of a row, in the words of the rules."""


def fit(
    fields: Sequence[Field], sources: Mapping[str, tuple[str, ...]], cells: Cells, mapping: ColumnMapping, name: str
) -> tuple[dict[str, Any], Decimal | None, str]:
    """The values of a row, what orders it, and whether that is a number or a time. `name` is its file's."""
    values: dict[str, Any] = {}
    for field in fields:
        if field.name in sources:
            value = _value(field, sources[field.name], cells)
            if value is not None:
                values[field.name] = value
        elif field.name == "subscriber" and mapping.subscriber_from_file:
            values["subscriber"] = name
        elif field.name == "topic" and mapping.topic_value is not None:
            values["topic"] = mapping.topic_value
        elif field.name == "position":
            values["position"] = 0  # until all rows are known
    if mapping.order_by in (None, LINES):
        return values, None, ""
    column = str(mapping.order_by)
    text = cell(cells, column)
    if text is None:
        raise Misfit(rules.of_column([column], rules.EMPTY))
    return values, *_moment(column, text)


def _value(field: Field, columns: tuple[str, ...], cells: Cells) -> Any:
    if field.kind == "text":
        return _name(field, columns, cells)
    column = columns[0]
    text = cell(cells, column)
    if text is None:
        if field.is_needed and field.kind == "count":
            raise Misfit(rules.of_column([column], rules.EMPTY))
        return None
    match field.kind:
        case "count" | "index":
            return _whole(column, text, rules.INDEX_MAX if field.kind == "index" else rules.COUNT_MAX)
        case "flag":
            word = text.strip(" ").lower()
            if word not in rules.YES | rules.NO:
                raise _wrong(column, text, rules.NOT_FLAG)
            return word in rules.YES
        case "stamp":
            try:
                return _stamps.decode(text)
            except msgspec.DecodeError:
                raise _wrong(column, text, rules.NOT_STAMP) from None
        case _:
            if _is_short(text.replace(".", "", 1)) and len(text.partition(".")[2]) <= rules.FRACTION_DIGITS:
                return float(text)
            time, kind = _moment(column, text)
            return float(time / 1000 if kind == "time" else time)


def _name(field: Field, columns: tuple[str, ...], cells: Cells) -> str | None:
    if len(columns) == 1 and (text := cells.get(columns[0])):
        return text
    parts = [cell(cells, column) for column in columns]
    if None in parts:
        if field.is_needed:
            raise Misfit(rules.empty_name(columns, field.name))
        return None
    return parts[0] if len(parts) == 1 else joined([part for part in parts if part is not None])


def joined(parts: Sequence[str]) -> str:
    """Several cells as one name; different cells give different names."""
    return "/".join(part.replace("%", "%25").replace("/", "%2F") for part in parts)


def cell(cells: Cells, column: str) -> str | None:
    """A cell; of JSON also one inside an object."""
    text = cells.get(column)
    if text is None and "." in column:
        top, *parts = column.split(".")
        text = cells.get(top)
        for part in parts:
            text = _inside(text, part)
    return text or None


def _inside(text: str | None, part: str) -> str | None:
    if text is None or not text.lstrip().startswith("{"):
        return None
    try:
        return text_of(msgspec.json.decode(text, type=dict[str, msgspec.Raw]).get(part))
    except msgspec.DecodeError:
        return None


def text_of(raw: msgspec.Raw | None) -> str | None:
    """A JSON value as text: of a string what it says, of anything else what is written, digit for digit."""
    if raw is None:
        return None
    text = bytes(raw).decode()
    if text.startswith('"'):
        return str(msgspec.json.decode(raw))
    return None if text == "null" else text


def _whole(column: str, text: str, at_most: int) -> int:
    if _is_short(text):
        return int(text)
    number = _number(text)
    if number is None or number != number.to_integral_value() or abs(number) > rules.COUNT_MAX:
        raise _wrong(column, text, rules.NOT_WHOLE)
    if number < 0:
        raise _wrong(column, text, rules.NEGATIVE)
    if number > at_most:
        raise _wrong(column, text, rules.TOO_LARGE)
    return int(number)


def _moment(column: str, text: str) -> tuple[Decimal, str]:
    """The value to order rows by: a number as it is, a time as microseconds since 1970. And which of them it is."""
    number = _number(text)
    if number is not None:
        return number, "number"
    words = text.strip(" ")
    try:
        time = datetime.fromisoformat(words.replace(" ", "T", 1).replace(" ", "")) if rules.is_time(words) else None
    except ValueError:  # no such day
        time = None
    if time is None:
        raise _wrong(column, text, rules.NOT_TIME)
    since = (time.replace(tzinfo=UTC) if time.tzinfo is None else time) - EPOCH
    return Decimal(since.days * 86_400_000_000 + since.seconds * 1_000_000 + since.microseconds), "time"


def _is_short(text: str) -> bool:
    """Digits and nothing else, and so few of them that every bound is kept: what most cells are, and quick to tell."""
    return len(text) <= 9 and text.isascii() and text.isdigit()


def _number(text: str) -> Decimal | None:
    text = text.strip(BLANK)
    if "_" in text or text != text.strip():  # which Python alone would take
        return None
    try:
        number = Decimal(text)
        if not number.is_finite() or (number and number.adjusted() >= rules.NUMBER_DIGITS - rules.FRACTION_DIGITS):
            return None
        return number.quantize(_UNIT, context=_CONTEXT)
    except InvalidOperation:
        return None


def _wrong(column: str, text: str, problem: str) -> Misfit:
    return Misfit(rules.of_column([column], f"{text[: rules.SHOWN_MAX]} {problem}"))
