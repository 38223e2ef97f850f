"""A configuration written out as the file that gives it: what `seriatim serve --check` shows, defaults included."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from seriatim.server.config import Admin, ClusterConfig, Limits, Security, Streams, Times

_BARE = re.compile(r"[A-Za-z0-9_-]+")


def config_text(config: ClusterConfig) -> str:
    """TOML that reads as the same configuration, from the same folder."""
    values: dict[str, Any] = msgspec.to_builtins(config, enc_hook=str)
    del values["folder"], values["file"], values["says_tree"]
    return "".join(f"{line}\n" for line in _table(values, ""))


def brief_text(config: ClusterConfig) -> str:
    """TOML that reads as the same configuration, without settings that have their defaults."""
    values: dict[str, Any] = msgspec.to_builtins(config, enc_hook=str)
    del values["folder"], values["file"], values["says_tree"]
    for name, node in values["nodes"].items():
        kept = {key: value for key, value in node.items() if value}
        values["nodes"][name] = kept | {"address": _alone(config.nodes[name].addresses)}
    for key, usual in USUAL.items():
        values[key] = {name: value for name, value in values[key].items() if value != usual[name]}
    given = {"cluster": "seriatim", "order": "global", "mode": "log", "causal": False, "default_home": ""}
    kept = {key: value for key, value in values.items() if value not in ({}, given.get(key, {}))}
    return "".join(f"{line}\n" for line in _table(kept, ""))


USUAL: dict[str, dict[str, Any]] = {
    key: msgspec.to_builtins(usual)
    for key, usual in {
        "times": Times(),
        "limits": Limits(),
        "streams": Streams(),
        "security": Security(),
        "admin": Admin(),
    }.items()
}


def _alone(addresses: tuple[str, ...]) -> str | list[str]:
    return addresses[0] if len(addresses) == 1 else list(addresses)


def _table(values: Mapping[str, Any], path: str) -> Iterator[str]:
    tables = {key: value for key, value in values.items() if isinstance(value, Mapping)}
    plain = {key: value for key, value in values.items() if key not in tables and value is not None}
    if path and (plain or not tables):
        yield ""
        yield f"[{path}]"
    for key, value in plain.items():
        yield f"{_key(key)} = {_value(value)}"
    for key, value in tables.items():
        yield from _table(value, f"{path}.{_key(key)}" if path else _key(key))


def _key(key: str) -> str:
    return key if _BARE.fullmatch(key) else _value(key)


def _value(value: object) -> str:
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_value, value))}]"
    # JSON's strings, numbers and truth values are TOML's too, but TOML wants no raw DEL and no surrogate pairs.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
