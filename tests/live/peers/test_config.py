"""peers.toml: every mistake is named by its key, its value and what to write instead."""

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from seriatim.live.peers import PeersConfig, load_peers, parse_peers
from seriatim.live.peers.config import PeersDescription, PeersOptions, PeersSecurity, difference
from seriatim.model import InputError
from seriatim.runtime.net.security import SecurityOptions
from seriatim.runtime.tables import description, fields_of


def is_exposed(config: PeersConfig, id: int) -> bool:
    return config.peers[id].is_exposed(config.load_security())


TWO = {"0": "127.0.0.1:7500", "1": "127.0.0.1:7501"}


def test_the_smallest_file(tmp_path: Path) -> None:
    path = tmp_path / "peers.toml"
    path.write_text('[peers]\n0 = "127.0.0.1:7500"\n7 = {address = "host:7507", bind = "0.0.0.0:7507"}\n')
    config = load_peers(path)
    assert config.cube.ids == (0, 7)
    assert config.peers[7].bind == "0.0.0.0:7507"
    assert config.journal(7) == tmp_path / "journals" / "peer-7"
    assert config.options.protocol.heartbeat_ms == 500.0, "peers watch each other unless told otherwise"
    assert not is_exposed(config, 0) and is_exposed(config, 7)


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ({}, r"peers: the list is empty; write \[peers\]"),
        ({"peers": {}}, r"peers: the list is empty"),
        ({"peers": 3}, r"peers: 3 is not a table"),
        ({"peer": TWO}, r"peer: there is no such key; did you mean 'peers'\?"),
        ({"peers": {"x": "h:1"}}, r"peers\.x: the key is not valid; use whole numbers from 0 to 65535"),
        ({"peers": {"01": "h:1"}}, r"peers\.01: the key is not valid"),
        ({"peers": {"65536": "h:1"}}, r"peers\.65536: the key is not valid"),
        ({"peers": {"0": 7500}}, r'peers\.0: 7500 does not fit .*; give "host:port" where'),
        ({"peers": {"0": "h"}}, r"peers\.0\.address: 'h' is not an address"),
        ({"peers": {"0": "h:0"}}, r"peers\.0\.address: 'h:0' has no fixed port"),
        ({"peers": {"0": {"bind": "h:1"}}}, r"peers\.0\.address: is missing"),
        ({"peers": {"0": {"address": "h:1", "port": 3}}}, r"peers\.0\.port: there is no such key"),
        ({"peers": {"0": {"address": "h:1", "bind": "h"}}}, r"peers\.0\.bind: 'h' is not an address"),
        ({"peers": {"0": "h:1", "5": "h:1"}}, r"peers\.5\.address: 'h:1' is also the address of peer 0"),
        ({"peers": TWO, "options": {"window": 0}}, r"options\.window: 0 does not fit .*; give how many publications"),
        ({"peers": TWO, "options": {"windows": 1}}, r"options\.windows: there is no such key; did you mean 'window'\?"),
        ({"peers": TWO, "options": {"suspect_after_ms": 10}}, r"options\.suspect_after_ms: 10 is not above heartbeat"),
        ({"peers": TWO, "options": {"payload_bytes_max": 10**9}}, r"options\.payload_bytes_max: .* does not fit"),
        ({"peers": TWO, "cluster": "a b"}, r"cluster: 'a b' does not fit .*; give a name of up to 32"),
    ],
)
def test_mistakes(raw: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse_peers(raw)


def test_files_of_security_are_read_when_they_are_needed(tmp_path: Path) -> None:
    config = parse_peers({"peers": TWO, "security": {"token_file": "nothing"}}, tmp_path)
    with pytest.raises(InputError, match=r"security\.token_file: .*nothing cannot be read"):
        config.load_security()
    (tmp_path / "nothing").write_text("0123456789abcdef\n")
    (tmp_path / "nothing").chmod(0o600)
    assert config.load_security().token == "0123456789abcdef"


def test_a_digest_depends_on_what_all_must_share_and_on_nothing_else(tmp_path: Path) -> None:
    one = parse_peers({"peers": TWO}, tmp_path)
    same = parse_peers({"peers": dict(reversed(TWO.items())), "journals": "elsewhere"})
    assert one.description.digest == same.description.digest
    other = parse_peers({"peers": {**TWO, "1": "127.0.0.1:7509"}})
    assert one.description.digest != other.description.digest
    assert one.description.digest != parse_peers({"peers": TWO, "options": {"window": 3}}).description.digest


def test_the_difference_is_named() -> None:
    ours = PeersDescription(cluster="a", peers=TWO, options={"window": 1})
    assert difference(ours, ours) == ""
    there = PeersDescription(cluster="a", peers={"0": TWO["0"]}, options={"window": 1})
    assert difference(ours, there) == "peers.1 is missing there and '127.0.0.1:7501' here"
    there = PeersDescription(cluster="a", peers=TWO, options={"window": 2})
    assert difference(ours, there) == "options.window is 2 there and 1 here"
    assert difference(ours, PeersDescription(cluster="b", peers={}, options={})) == "cluster is 'b' there and 'a' here"


def test_every_key_is_described_and_in_the_guide() -> None:
    guide = (Path(__file__).parents[3] / "docs" / "peers.md").read_text(encoding="utf-8")
    tables: list[tuple[type[Any], str]] = [(PeersConfig, ""), (PeersOptions, "options."), (PeersSecurity, "security.")]
    for type_, prefix in tables:
        for key, hint in fields_of(type_).items():
            if key in ("peers", "options", "security", "folder", "given"):
                continue
            assert description(hint)
            assert f"`{prefix}{key}`" in guide, f"docs/peers.md does not tell of {prefix}{key}"


def test_what_the_application_gives_takes_nothing_else_away(tmp_path: Path) -> None:
    """A token in the file counts also for who gives certificates, and the other way round."""
    (tmp_path / "token").write_text("0123456789abcdef\n")
    (tmp_path / "token").chmod(0o600)
    config = parse_peers({"peers": {"0": "10.0.0.1:7500"}, "security": {"token_file": "token"}}, tmp_path)
    encrypted = replace(config, given=SecurityOptions(tls=True)).load_security()
    assert (encrypted.token, encrypted.encrypted) == ("0123456789abcdef", True)
    assert not is_exposed(replace(config, given=SecurityOptions(tls=True)), 0)
    other = replace(config, given=SecurityOptions(token="fedcba9876543210")).load_security()
    assert (other.token, other.encrypted) == ("fedcba9876543210", False)
    assert is_exposed(parse_peers({"peers": {"0": "10.0.0.1:7500"}}), 0)
