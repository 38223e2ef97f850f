"""Mistakes in an overlay.toml are reported before anything runs, with the path of the key and the fix."""

import re
from pathlib import Path

import pytest

from seriatim.live.overlay import load_overlay, parse_overlay
from seriatim.model import InputError
from seriatim.protocols.overlay import OverlayError
from tests.certificates import Certificates


def place(port: int, parent: str = "") -> dict[str, str]:
    return {"address": f"127.0.0.1:{port}", "parent": parent}


def test_the_smallest_file() -> None:
    config = parse_overlay({"brokers": {"B1": "127.0.0.1:7600"}})
    assert config.overlay.root == "B1" and config.options.order == "rooted"


def test_a_cycle_is_refused_and_named() -> None:
    brokers = {"R": place(1), "A": place(2, "C"), "B": place(3, "A"), "C": place(4, "B")}
    with pytest.raises(OverlayError, match="cycle A → C → B → A"):
        parse_overlay({"brokers": brokers})


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        ({}, "brokers: the list is empty"),
        ({"brokers": {"A": place(1), "B": place(2)}}, "more than one root: A, B"),
        ({"brokers": {"A": place(1), "B": place(2, "X")}}, "unknown parent 'X'"),
        (
            {"brokers": {"A": place(1), "B": place(1, "A")}},
            "brokers.B.address: '127.0.0.1:1' is also the address",
        ),
        ({"brokers": {"A": place(0)}}, "give every broker a port above 0"),
        ({"brokers": {"A": "nowhere"}}, "brokers.A.address"),
        ({"brokers": {"A b": place(1)}}, "brokers.A b: the key is not valid; use a name of up to 64"),
        ({"brokers": {"broker": place(1)}}, "brokers.broker: 'broker' has another meaning"),
        ({"brokers": {"A": {"parent": "B"}}}, "brokers.A.address: is missing"),
        ({"brokers": {"A": 7}}, "brokers.A: 7 does not fit (Expected `str`, got `int`)"),
        ({"brokers": {"A": {**place(1), "adress": "x"}}}, "did you mean 'address'"),
        ({"brokers": {"A": place(1)}, "options": {"order": "best"}}, "options.order: 'best' does not fit"),
        ({"brokers": {"A": place(1)}, "options": {"remember_s": 0}}, "options.remember_s: 0 does not fit"),
        ({"brokers": {"A": place(1)}, "option": {}}, "did you mean 'options'"),
        ({"brokers": {"A": place(1)}, "security": {"token_file": "none"}}, "token_file"),
    ],
)
def test_mistakes_are_named(raw: dict[str, object], words: str) -> None:
    with pytest.raises(InputError, match=re.escape(words)):
        parse_overlay(raw).load_security()


def test_a_certificate_does_not_make_a_broker(certificates: Certificates, tmp_path: Path) -> None:
    """Where clients must show something, brokers must show what no client has."""
    security = {
        "certificate": str(certificates.server),
        "key": str(certificates.server_key),
        "authority": str(certificates.authority),
        "require_client_certificate": True,
    }
    two = {"A": place(1), "B": place(2, "A")}
    with pytest.raises(InputError, match=r"security\.broker_token_file: is missing: a client could say"):
        parse_overlay({"brokers": two, "security": security}).load_security()
    parse_overlay({"brokers": {"A": place(1)}, "security": security}).load_security()
    token = tmp_path / "brokers"
    token.write_text("the-token-of-brokers")
    security["broker_token_file"] = str(token)
    parse_overlay({"brokers": two, "security": security}).load_security()


def test_two_brokers_of_one_name(tmp_path: Path) -> None:
    path = tmp_path / "overlay.toml"
    path.write_text('[brokers]\nB1 = "127.0.0.1:1"\nB1 = "127.0.0.1:2"\n', encoding="utf-8")
    with pytest.raises(InputError, match="is not TOML"):
        load_overlay(path)


def test_a_broker_that_is_not_in_the_file() -> None:
    config = parse_overlay({"brokers": {"B1": "127.0.0.1:7600"}})
    with pytest.raises(InputError, match="there is no broker 'B2' in the list"):
        config.check_member("B2")
