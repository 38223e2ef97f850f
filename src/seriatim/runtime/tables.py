"""Files of TOML as configuration: a schema says what a file may hold, and `parse` reads it.

A schema is a Struct. A key is a field; the description in its annotation says in an error what to give, and is the row
in the guide. A field may be a value, another schema (a table), or a dict: a table with free keys. A mistake is named by
the path of its key, its value and what to write instead.
"""

import tomllib
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, TypeAlias, TypeVar, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta, Struct

from seriatim.model import InputError

T = TypeVar("T", bound=Struct)

NESTING_MAX = 16  # no configuration of ours is half as deep
INTEGER_MAX = 2**63 - 1  # TOML's own bound

# Numbers of configurations. All are bounded on both sides, so that no sum, timer or unit of a broker overflows later.
Milliseconds: TypeAlias = Annotated[float, Meta(ge=1, le=1e11)]
Seconds: TypeAlias = Annotated[float, Meta(ge=0.001, le=1e9)]
Count: TypeAlias = Annotated[int, Meta(ge=1, le=10**9)]
ByteCount: TypeAlias = Annotated[int, Meta(ge=1, le=10**12)]


def about(text: str, **bounds: Any) -> Meta:
    """Describe a key in its annotation, with the bounds of its value."""
    return Meta(description=text, **bounds)


def read_toml(path: Path, example: str = "cluster.toml") -> dict[str, Any]:
    """Read a TOML file. InputError says what is wrong with it."""
    try:
        raw = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        article = "an" if example[0] in "aeiou" else "a"
        raise InputError(str(path), "there is no such file", f"give the path of {article} {example}") from None
    except OSError as error:
        raise InputError(str(path), f"cannot be read: {error.strerror}", "check the path and its permissions") from None
    except UnicodeDecodeError:
        raise InputError(str(path), "is not text", "write it in UTF-8") from None
    except RecursionError:
        raise InputError(str(path), "is nested too deeply", "write tables and lists side by side") from None
    except ValueError as error:  # TOMLDecodeError, and a number of thousands of digits
        raise InputError(str(path), f"is not TOML: {error}", "correct that line") from None
    _check_values(raw)
    return raw


def _check_values(raw: Mapping[str, Any]) -> None:
    """Refuse values that no key can have, with their path, before the schema is checked.

    NUL bytes end names in the operating system. Values that are nested too deeply or too large cannot be shown.
    """
    rest: list[tuple[str, int, object]] = [(str(key), 1, value) for key, value in raw.items()]
    while rest:
        path, depth, value = rest.pop()
        if "\0" in path or (isinstance(value, str) and "\0" in value):
            raise InputError(path.replace("\0", "\\0"), "holds a NUL byte", "remove it")
        if isinstance(value, int) and abs(value) > INTEGER_MAX:
            raise InputError(path, "the number has more than 64 bits", "give a smaller one")
        if not isinstance(value, Mapping | list):
            continue
        if depth == NESTING_MAX:
            raise InputError(path, "is nested too deeply", "write tables and lists side by side")
        if isinstance(value, Mapping):
            rest.extend((f"{path}.{key}", depth + 1, each) for key, each in value.items())
        else:
            rest.extend((path, depth + 1, each) for each in value)


def fields_of(schema: type[Struct]) -> dict[str, Any]:
    hints = get_type_hints(schema, include_extras=True)
    return {name: hints[name] for name in schema.__struct_fields__}


def parse(schema: type[T], raw: object, path: str = "", **given: Any) -> T:
    """The value of a table. `given`: fields of the schema that do not come from the file.

    A schema with a class variable `short` may be written as one value: that of the key with this name. Its own checks,
    in `__post_init__`, name its fields; the path of the table is added here.
    """
    hints = fields_of(schema)
    short = getattr(schema, "short", "")
    if short and not isinstance(raw, Mapping):
        raw = {short: convert_value(hints[short], raw, path)}
    table = check_table(raw, path)
    check_keys(table, hints.keys() - given.keys(), path)
    values = {key: _parse_field(hints[key], value, _join(path, key)) for key, value in table.items()}
    for each in msgspec.structs.fields(schema):
        if each.required and each.name not in values and each.name not in given:
            raise InputError(_join(path, each.name), "is missing", f"give {description(hints[each.name])}")
    try:
        return schema(**values, **given)
    except InputError as error:
        raise (type(error)(_join(path, error.field), error.problem, error.fix) if path else error) from None


def _parse_field(hint: Any, value: object, path: str) -> Any:
    kind = get_args(hint)[0] if get_origin(hint) is Annotated else hint
    if isinstance(kind, type) and issubclass(kind, Struct):
        return parse(kind, value, path)
    if get_origin(kind) is dict:
        keys, values = get_args(kind)
        table = check_table(value, path).items()
        return {_parse_key(keys, key, path): _parse_field(values, each, _join(path, key)) for key, each in table}
    return convert_value(hint, value, path)


def _parse_key(hint: Any, key: str, path: str) -> Any:
    """A free key: a name or a number."""
    try:
        found = msgspec.convert(key, hint, strict=False)
    except msgspec.ValidationError:
        found = None
    if str(found) != key:
        raise InputError(f"{path}.{key}", "the key is not valid", f"use {description(hint)}")
    return found


def convert_value(hint: Any, value: object, path: str) -> Any:
    """Convert one value. InputError names the path of the key."""
    try:
        return msgspec.convert(value, hint)
    except msgspec.ValidationError as error:
        problem = f"{value!r} does not fit ({str(error).partition(' - at')[0]})"
        raise InputError(path, problem, f"give {description(hint)}") from None


def description(hint: Any) -> str:
    """The description of a field, from its annotation."""
    return next(each.description for each in get_args(hint)[1:] if isinstance(each, Meta) and each.description)


def check_table(value: object, path: str) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise InputError(path, f"{value!r} is not a table", f"write it as [{path}]")
    return dict(value)


def check_keys(table: Mapping[str, Any], known: Iterable[str], path: str, file: str = "") -> None:
    """An unknown key is an error that says which one may have been meant."""
    for key in table:
        if key not in known:
            near = get_close_matches(key, known, n=1)
            fix = f"did you mean {near[0]!r}?" if near else f"use one of {', '.join(sorted(known))}"
            raise InputError(_join(path, key), f"there is no such key{f' in {file}' if file else ''}", fix)


def _join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key
