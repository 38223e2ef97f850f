"""A history from Parquet files or Delta tables, without Spark.

Whole columns are checked by their types: a column of whole numbers needs one look at its lowest, and text none at its
digits. Here is what nearly all logs are made of. Whatever is not as simple (a value that does not fit, folders that are
columns, types that need a conversion) raises `OnlySpark`: Spark reads it, and says which row is wrong, if one is.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import repeat
from pathlib import Path
from typing import Any, NoReturn

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from seriatim.audit import rules
from seriatim.audit.folders import DELTA, check_below, check_here
from seriatim.audit.logs import OnlySpark, find_files, tables_in
from seriatim.audit.mapping import LINES, ColumnMapping
from seriatim.audit.reading import Table
from seriatim.audit.rules import Field, format_of
from seriatim.model import History
from seriatim.pipeline.arrow import delta
from seriatim.pipeline.arrow.columns import Misfit, moments_of, texts_of, value_of
from seriatim.pipeline.arrow.positions import Array, positions_by_line, positions_by_order

READ = ("deliveries", "publications", "subscriptions")  # an audit does not look at messages, nor at stamps


def is_delta(path: Path | str) -> bool:
    return (Path(path) / DELTA).is_dir()


def row_count(path: Path | str, files: Iterable[Path]) -> int:
    """At most how many rows there are. Reads only the ends of Parquet files."""
    if is_delta(path):
        return delta.row_count(delta.open_table(str(path)))
    try:
        return sum(pq.read_metadata(file).num_rows for file in files if format_of(file) == "parquet")
    except (pa.ArrowException, OSError) as error:
        raise OnlySpark(str(path), f"a file cannot be read ({error})") from None


def read_parquet(path: Path | str, mapping: ColumnMapping) -> History:
    """The history at a path: a folder with its tables, or deliveries alone. OnlySpark: see above."""
    path = Path(path)
    if is_delta(path):
        return History(_Log("deliveries", path, [path], mapping).rows())
    own = ColumnMapping(run=mapping.run, run_column=mapping.run_column)
    found = {} if mapping.is_foreign or not path.is_dir() else tables_in(path)
    if not found:
        check_below(path)
        return History(_rows("deliveries", path, mapping))
    check_here(path)
    for child in found.values():
        if not is_delta(child):
            check_below(child)
    history = History()
    for name, child in found.items():
        if name in READ:
            setattr(history, name, _rows(name, child, own))
    return history


def _rows(name: str, path: Path, mapping: ColumnMapping) -> list[Any]:
    if is_delta(path):
        return _Log(name, path, [path], mapping).rows()
    files = find_files(path)
    if not files:
        return []
    kinds = {format_of(file) for file in files if file.stat().st_size}
    if kinds and "parquet" not in kinds:
        return Table(name, path, files, mapping).rows()
    if kinds != {"parquet"} or not all(file.stat().st_size for file in files):
        raise OnlySpark(str(path), "files of several formats, or empty ones")
    if path.is_dir() and any("=" in part for file in files for part in file.relative_to(path).parts[:-1]):
        raise OnlySpark(str(path), "folders named column=value")
    return _Log(name, path, files, mapping).rows()


class _Log:
    """One table, in memory."""

    def __init__(self, name: str, path: Path, files: list[Path], mapping: ColumnMapping) -> None:
        self.name, self.where, self.mapping, self.files = name, str(path), mapping, files
        self.fields = rules.FIELDS[name]

    def rows(self) -> list[Any]:
        names = _names_of(self.files[0])
        rules.check_heading(names, self.where)
        mapping = self.mapping
        sources = mapping.sources_of(self.name, names, self.where, True)
        wanted = {column for columns in sources.values() for column in columns}
        wanted |= {mapping.run_column} & set(names)
        if mapping.order_by not in (None, LINES):
            wanted.add(str(mapping.order_by))
        if inner := sorted(wanted - set(names)):
            self._give_up(f"column {inner[0]} is inside another one")
        table, files = self._read([name for name in names if name in wanted])
        table, files = self._of_run(table, files)
        try:
            return self._made(table, files, sources)
        except Misfit as misfit:
            self._give_up(str(misfit))
        except pa.ArrowException as error:
            self._give_up(f"a column cannot be converted ({error})")

    def _give_up(self, problem: str) -> NoReturn:
        raise OnlySpark(self.where, problem)

    def _read(self, names: list[str]) -> tuple[pa.Table, pa.Array]:
        """The columns of all files, one file after the other, and from which of them each row is."""
        parts: list[pa.Table] = []
        try:
            for file in self.files:
                if is_delta(file):
                    parts.append(pa.Table.from_batches(delta.batches(delta.open_table(str(file)))).select(names))
                else:
                    parts.append(pq.ParquetFile(file).read(columns=names).select(names))
                if parts[-1].schema.types != parts[0].schema.types:
                    self._give_up(f"{file} has other types than {self.files[0]}")
            table = pa.concat_tables([part.replace_schema_metadata() for part in parts])
            table.validate(full=True)
        except (pa.ArrowException, KeyError, OSError) as error:
            self._give_up(f"a file cannot be read ({error})")
        sizes = [part.num_rows for part in parts]
        return table, pa.concat_arrays([pa.repeat(pa.scalar(i, pa.int32()), size) for i, size in enumerate(sizes)])

    def _of_run(self, table: pa.Table, files: pa.Array) -> tuple[pa.Table, pa.Array]:
        """The rows of the run that is asked for; all of them, if there is one at most."""
        mapping = self.mapping
        if mapping.run_column not in table.column_names:
            return table, files
        try:
            run = texts_of(table, (mapping.run_column,))
        except Misfit as misfit:
            self._give_up(str(misfit))
        names = {name for name in run.dictionary.to_pylist() if name is not None}
        if mapping.run is None:
            if len(names) > 1:
                raise rules.runs_mixed(self.where, names)
            return table, files
        if names and mapping.run not in names:
            raise rules.no_such_run(self.where, mapping.run, names)
        is_asked = pc.or_(pc.is_null(run), pc.fill_null(pc.equal(run.dictionary_decode(), mapping.run), False))
        return table.filter(is_asked), files.filter(is_asked)

    def _made(self, table: pa.Table, files: pa.Array, sources: Mapping[str, tuple[str, ...]]) -> list[Any]:
        columns: list[Iterable[Any]] = []
        subscribers: Any = None
        for field in self.fields:
            column: Any = None
            if field.kind == "stamp":
                pass
            elif field.name in sources:
                column = value_of(field, table, sources[field.name])
            elif field.name == "subscriber" and self.mapping.subscriber_from_file:
                column = self._named_by_file(files)
            elif field.name == "topic" and self.mapping.topic_value is not None:
                columns.append(repeat(self.mapping.topic_value))
                continue
            elif field.name == "position" and self.mapping.order_by is not None:
                columns.append(self._positions(table, files, subscribers).tolist())
                continue
            if field.name == "subscriber":
                subscribers = column
            columns.append(_listed(column, field))
        kind = rules.ROWS[self.name]
        first, *others = columns
        return list(map(kind, first, *others)) if table.num_rows else []

    def _named_by_file(self, files: pa.Array) -> pa.DictionaryArray:
        names: dict[str, Path] = {}
        for file in self.files:
            name = rules.name_of(file.name)
            if (other := names.setdefault(name, file)) != file:
                raise rules.called_alike(str(file), str(other), name)
        return pa.DictionaryArray.from_arrays(files, pa.array(list(names)))

    def _positions(self, table: pa.Table, files: pa.Array, subscribers: pa.DictionaryArray) -> Array:
        codes, places = subscribers.indices.to_numpy(), files.to_numpy()
        if self.mapping.order_by == LINES:
            found = positions_by_line(codes, places)
            if isinstance(found, int):
                raise rules.in_several_files(self.where, subscribers.dictionary[found].as_py())
            return found
        order = moments_of(table, str(self.mapping.order_by))
        return positions_by_order(codes, places, order, self.mapping.trust_order)


def _names_of(file: Path) -> list[str]:
    try:
        if is_delta(file):
            return [field.name for field in delta.open_table(str(file)).schema().fields]
        return list(pq.read_schema(file).names)
    except (pa.ArrowException, OSError) as error:
        raise OnlySpark(str(file), f"it cannot be read ({error})") from None


def _listed(column: Any, field: Field) -> Iterable[Any]:
    """The values of a column. Equal texts are one object: they are hashed and compared often."""
    if column is None:
        return repeat({"index": 0, "flag": False}.get(field.kind))
    if isinstance(column, pa.DictionaryArray):
        words = column.dictionary.to_pylist()
        if column.null_count:
            return _worded([*words, None], pc.fill_null(column.indices, len(words)))
        return _worded(words, column.indices)
    values: list[Any] = column.to_pylist()
    return values


def _worded(words: list[str | None], indices: pa.Array) -> Iterator[str | None]:
    return map(words.__getitem__, indices.to_pylist())
