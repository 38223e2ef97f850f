"""Wrong arguments of `connect`, `subscribe` and `next`: an InputError names the argument and the fix, before anything
has changed."""

import ssl
from pathlib import Path
from typing import Any

import pytest

import seriatim
from seriatim.brokers.urls import schemes
from seriatim.client.settings import BROKERLESS
from seriatim.model import InputError
from tests.client.world import data, take, world


@pytest.mark.parametrize("scheme", [*schemes(), *BROKERLESS])
@pytest.mark.parametrize("rest", ["[::1", "user:secret@[::1"])
def test_a_url_with_half_a_bracket_is_refused_at_once(scheme: str, rest: str) -> None:
    with pytest.raises(InputError, match=r"^url: .*\[::1") as caught:
        seriatim.connect(f"{scheme}://{rest}")
    assert "brackets" in caught.value.fix
    assert "secret" not in str(caught.value)


def test_ipv6_hosts_are_fine() -> None:
    seriatim.connect("nats://[::1]:4222,127.0.0.1:4223,[::1]")
    seriatim.connect("overlay://[::1]:7600")


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"timeout_s": "x"}, "timeout_s: 'x' is not a time; give a number of seconds above 0"),
        ({"timeout_s": float("nan")}, "timeout_s: nan is not a time"),
        ({"timeout_s": None}, "timeout_s: None is not a time"),
        ({"journals": 3}, "journals: 3 is not a path; give a folder, or a function from a name to a Journal"),
        ({"journals": "a\0b"}, "journals: 'a\\x00b' is not a path"),
        ({"publication_log": 5}, 'publication_log: 5 is not a path; give a folder, or "broker:"'),
        ({"stamp_key": "00" * 32}, "stamp_key: expected bytes, got str; give bytes; bytes.fromhex"),
        ({"stamp_key": b"short"}, "stamp_key: it has 5 bytes; every cluster key has at least 16; give the key"),
        ({"token": 7}, "token: expected a string, got int"),
        ({"tls": ssl.create_default_context()}, "tls: expected a bool or SecurityOptions, got SSLContext; give"),
        ({"causal": "no"}, "causal: expected a bool, got 'no'; use True or False"),
        ({"limits": 3}, "limits: expected a Limits object, got 3; use seriatim.Limits(...)"),
        ({"sequencers": 3}, 'sequencers: expected a list, got 3; give ["host:port"]'),
        ({"sequencers": [3]}, 'sequencers: 3 is not an address; give "host:port"'),
        ({"sequencers": ["h:99999"]}, "sequencers: 'h:99999' has no port between 0 and 65535"),
    ],
)
def test_connect_names_the_argument(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(InputError) as caught:
        seriatim.connect("nats://h", **options)
    assert str(caught.value).startswith(problem)


def test_policies_and_limits_name_the_argument() -> None:
    with pytest.raises(InputError, match="after_s: 'x' is not a time"):
        seriatim.GapPolicy.skip("x")  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"limits\.gaps: 'x' is not a whole number"):
        seriatim.Limits(gaps="x")  # type: ignore[arg-type]


async def test_subscribe_and_next_name_the_argument(tmp_path: Path) -> None:
    async with world() as w, w.bus() as bus:
        with pytest.raises(InputError, match='log: 5 is not a path; give a folder, or "broker:"'):
            bus.subscribe("a", log=5)  # type: ignore[arg-type]
        with pytest.raises(InputError, match=r"log: .* is not a path"):
            bus.subscribe("a", log=f"{tmp_path}\0")
        with pytest.raises(InputError, match="where: 5 is not a filter; write one"):
            bus.subscribe("a", where=5)  # type: ignore[arg-type]
        async with bus.subscribe("a") as events:
            for wrong in ("x", float("nan")):
                with pytest.raises(InputError, match=r"timeout_s: .* is not a time"):
                    await events.next(wrong)  # type: ignore[arg-type]
            for wrong in ("x", 2.5):
                with pytest.raises(InputError, match=r"max: .* is not a whole number"):
                    await anext(events.batches(max=wrong))  # type: ignore[arg-type]
            await bus.publish("a", b"1")
            assert data(await take(events, 1)) == ["1"]
