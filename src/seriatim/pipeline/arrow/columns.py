"""Columns of Arrow tables as fields of a log: checked by type and by their bounds, never cell by cell.

What they mean is what `audit/rules.py` says and `pipeline/logs/fitting.py` does on Spark. A column that needs more than
this raises `Misfit`.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from seriatim.audit import rules
from seriatim.audit.rules import Field
from seriatim.pipeline.arrow.positions import Array

LARGE = 1e28  # near the bound of what is taken for a time
CLEAR = 1e7  # numbers with fractions above this differ by more than the digits that are kept of them


class Misfit(ValueError):
    """What is not simple about a column."""


def value_of(field: Field, table: pa.Table, columns: tuple[str, ...]) -> pa.Array:
    """The values of a field, none of which breaks a rule. Texts are a dictionary array."""
    if field.kind == "text":
        found = texts_of(table, columns)
        if field.is_needed and found.null_count:
            raise Misfit(rules.empty_name(columns, field.name))
        return found
    name = columns[0]
    column = _whole(table, name)
    if field.kind in ("count", "index"):
        return _counts(field, name, column)
    if field.kind == "flag":
        if not pa.types.is_boolean(column.type):
            raise Misfit(_other(name, column))
        return pc.fill_null(column, False)
    assert field.kind == "time", field
    if pa.types.is_timestamp(column.type) and column.type.unit != "ns":
        return pc.divide(pc.cast(_moments(column), pa.float64()), 1000.0)
    if pa.types.is_timestamp(column.type):
        column = _moments(column)
    return _numbers(name, column, pa.float64())


def texts_of(table: pa.Table, columns: tuple[str, ...]) -> pa.DictionaryArray:
    """One column, or several joined, as text; what is empty is null."""
    parts = [_texts(name, _whole(table, name)) for name in columns]
    if len(parts) > 1:
        parts = [pc.cast(part, pa.large_string()) for part in parts]  # also of dictionaries
        escaped = [pc.replace_substring(pc.replace_substring(part, "%", "%25"), "/", "%2F") for part in parts]
        parts = [pc.binary_join_element_wise(*escaped, pa.scalar("/", pa.large_string()))]  # null if one of them is
    found = parts[0] if isinstance(parts[0], pa.DictionaryArray) else parts[0].dictionary_encode()
    words = found.dictionary
    if len(words) and pc.any(pc.equal(words, "")).as_py():
        raise Misfit(rules.of_column(columns, "some cells are empty texts"))
    return found


def moments_of(table: pa.Table, name: str) -> Array:
    """What orders rows: whole numbers and times as they are, other numbers if none of their digits is left out."""
    column = _whole(table, name)
    if column.null_count:
        raise Misfit(rules.of_column([name], rules.EMPTY))
    if pa.types.is_timestamp(column.type):
        column = _moments(column)
    if pa.types.is_integer(column.type):
        whole: Array = pc.cast(column, pa.int64()).to_numpy(zero_copy_only=False)
        return whole
    numbers: Array = _numbers(name, column, pa.float64()).to_numpy(zero_copy_only=False)
    if not ((np.abs(numbers) >= CLEAR) | (numbers == np.floor(numbers))).all():
        raise Misfit(rules.of_column([name], "numbers with many digits"))
    return numbers


def _whole(table: pa.Table, name: str) -> pa.ChunkedArray:
    column = table.column(name)
    if isinstance(column.type, pa.DictionaryType):
        column = column.unify_dictionaries()
    return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)


def _texts(name: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
    kind = column.type
    if isinstance(kind, pa.DictionaryType) and _is_text(kind.value_type):
        return column
    if _is_text(kind) or pa.types.is_integer(kind):
        return pc.cast(column, pa.large_string())
    raise Misfit(_other(name, column))


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _counts(field: Field, name: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
    if not pa.types.is_integer(column.type):
        raise Misfit(_other(name, column))
    if column.null_count and field.is_needed:
        raise Misfit(rules.of_column([name], rules.EMPTY))
    bounds = pc.min_max(column).as_py()
    low, high = bounds["min"], bounds["max"]
    if low is not None and low < 0:
        raise Misfit(rules.of_column([name], f"{low} {rules.NEGATIVE}"))
    if high is not None and high > (rules.INDEX_MAX if field.kind == "index" else rules.COUNT_MAX):
        raise Misfit(rules.of_column([name], f"{high} {rules.TOO_LARGE}"))
    return pc.fill_null(column, 0) if field.kind == "index" else column


def _numbers(name: str, column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    if not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
        raise Misfit(_other(name, column))
    found = pc.cast(column, kind, safe=False)
    if pc.any(pc.or_(pc.invert(pc.is_finite(found)), pc.greater(pc.abs(found), LARGE))).as_py():
        raise Misfit(rules.of_column([name], rules.NOT_TIME))
    return found


def _moments(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Microseconds since 1970; nanoseconds, which Spark takes for numbers, as they are."""
    if column.type.unit != "ns":
        column = pc.cast(column, pa.timestamp("us", column.type.tz))
    return pc.cast(column, pa.int64())


def _other(name: str, column: pa.ChunkedArray) -> str:
    return rules.of_column([name], f"of type {column.type}")
