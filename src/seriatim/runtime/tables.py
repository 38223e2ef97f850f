"""Files of TOML as configuration: a mistake is named by the path of its key, its value and what to write instead.

The types of a configuration are the reference: a key is a field, and the description in its annotation says, in an
error, what to give.
"""

import tomllib
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, TypeAlias, TypeVar, get_args, get_type_hints

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


def read_toml(path: Path, example: str = "cluster.toml") -> dict[str, Any]:
    """A file of TOML; what is wrong with it is an InputError."""
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
    """What no key of any configuration can mean is refused with its path, before anything looks closer.

    NUL bytes end names in the operating system, and what is nested or large beyond measure cannot even be shown.
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


def fields_of(type_: type[Struct]) -> dict[str, Any]:
    """Its keys, and what each of them is."""
    return get_type_hints(type_, include_extras=True)


def convert_table(type_: type[T], table: object, path: str) -> T:
    """A table of the file as what it stands for."""
    checked = check_table(table, path, f"[{path}]")
    check_keys(checked, set(fields_of(type_)), path)
    return type_(**convert_values(type_, checked, path))


def convert_values(type_: type[Struct], table: Mapping[str, Any], path: str) -> dict[str, Any]:
    """Field by field, so that an error can name the key: the values of a table."""
    hints = fields_of(type_)
    return {key: convert_value(hints[key], value, f"{path}.{key}" if path else key) for key, value in table.items()}


def convert_value(hint: Any, value: object, path: str) -> Any:
    """One value; what does not fit is an error with the key's path."""
    try:
        return msgspec.convert(value, hint)
    except msgspec.ValidationError as error:
        problem = f"{value!r} does not fit ({str(error).partition(' - at')[0]})"
        raise InputError(path, problem, f"give {description(hint)}") from None


def description(hint: Any) -> str:
    """What a field is, from its annotation."""
    return next(each.description for each in get_args(hint)[1:] if isinstance(each, Meta) and each.description)


def check_table(value: object, path: str, example: str) -> dict[str, Any]:
    """The value, which must be a table."""
    if not isinstance(value, dict):
        raise InputError(path, f"{value!r} is not a table", f"write it as {example}")
    return value


def check_keys(table: Mapping[str, Any], known: Iterable[str], path: str, file: str = "") -> None:
    """An unknown key is an error that says which one may have been meant."""
    for key in table:
        if key not in known:
            near = get_close_matches(key, known, n=1)
            fix = f"did you mean {near[0]!r}?" if near else f"use one of {', '.join(sorted(known))}"
            where = f" in {file}" if file else ""
            raise InputError(f"{path}.{key}" if path else key, f"there is no such key{where}", fix)
