"""The table of refusals, cell by cell: what it names is refused with its words, and what it does not name works."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, get_args

import pytest

import seriatim
from seriatim.client.options import GapPolicy
from seriatim.client.refusals import CONNECT, METHODS, SUBSCRIBE, WHERE, Refusal, Substrate
from seriatim.live.overlay import LiveBroker, load_overlay
from seriatim.model import InputError
from tests.live.overlay.world import write_overlay
from tests.live.peers.world import write_peers

KINDS: tuple[Substrate, ...] = get_args(Substrate)

# For every option a value that somebody may refuse.
CONNECT_WITH: dict[str, Any] = {
    "mode": "ticket",
    "causal": False,
    "confirm": "placed",
    "own_order": True,
    "name": "me",
    "stamp_key": b"k" * 32,
    "sequencers": ["127.0.0.1:1"],
    "gaps": GapPolicy.skip(after_s=1.0),
    "journals": "folder",
    "publication_log": "broker:",
}
SUBSCRIBE_WITH: dict[str, dict[str, Any]] = {
    "topics": {"where": "price > 100"},
    "durable": {"durable": "d"},
    "ordered": {"ordered": False},
    "gaps": {"gaps": GapPolicy.skip(after_s=1.0)},
    "acknowledge": {"acknowledge": "manual"},
    "log": {"log": "broker:"},
    "start": {"start": "first", "ordered": False},
    "where": {"where": "price > 100"},
}


def urls(folder: Path) -> dict[Substrate, dict[str, Any]]:
    """For every kind of bus: how to connect."""
    return {
        "tree": {"url": "memory://"},
        "atoms": {"url": "memory://", "order": "atoms"},
        "peers": {"url": f"vcube://{write_peers(folder, 1)}?id=0"},
        "overlay": {"url": f"overlay://{write_overlay(folder, {'A': ''})}?broker=A"},
    }


def words(option: str, kind: Substrate, cell: Refusal) -> str:
    return f"{option}: {cell.reason} ({WHERE[kind]}); {cell.instead}"


def test_every_option_of_the_tables_is_tried() -> None:
    assert set(CONNECT) == set(CONNECT_WITH)
    assert set(SUBSCRIBE) == set(SUBSCRIBE_WITH)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("option", CONNECT)
def test_connect(option: str, kind: Substrate, tmp_path: Path) -> None:
    cell, options = CONNECT[option].get(kind), {option: CONNECT_WITH[option]}
    if cell is None:
        seriatim.connect(**urls(tmp_path)[kind], **options)
        return
    with pytest.raises(InputError) as refused:
        seriatim.connect(**urls(tmp_path)[kind], **options)
    assert str(refused.value) == words(option, kind, cell)


async def test_subscribe_and_methods(tmp_path: Path) -> None:
    """All kinds in one loop: to start an overlay for each cell would take long."""
    async with AsyncExitStack() as stack:
        where = urls(tmp_path)
        broker = LiveBroker(load_overlay(tmp_path / "overlay.toml"), "A")
        await broker.start()
        stack.push_async_callback(broker.stop)
        for kind in KINDS:
            bus = await stack.enter_async_context(seriatim.connect(**where[kind], timeout_s=30.0))
            for option, options in SUBSCRIBE_WITH.items():
                check_subscribe(bus, kind, option, options)
            async with bus.subscribe("t") as events:
                await check_methods(bus, events, kind)


def check_subscribe(bus: seriatim.Bus, kind: Substrate, option: str, options: dict[str, Any]) -> None:
    topics = () if option == "topics" else ("t",)
    cell = SUBSCRIBE[option].get(kind)
    if cell is None:
        bus.subscribe(*topics, **options)
        return
    with pytest.raises(InputError) as refused:
        bus.subscribe(*topics, **options)
    named = str(refused.value).partition(":")[0]
    assert str(refused.value) == words(named, kind, SUBSCRIBE[named][kind])
    assert named in {option, *options}


async def check_methods(bus: seriatim.Bus, events: seriatim.Subscription, kind: Substrate) -> None:
    calls: dict[str, Callable[[], Awaitable[object]]] = {
        "advertise": lambda: bus.advertise("price > 100"),
        "add": lambda: events.add("u"),
        "remove": lambda: events.remove("u"),
        "acknowledge": events.acknowledge,
        "seek": lambda: events.seek("first"),
    }
    assert set(calls) == set(METHODS)
    for method, call in calls.items():
        cell = METHODS[method].get(kind)
        if cell is not None:
            with pytest.raises(InputError) as refused:
                await call()
            assert str(refused.value) == words(method, kind, cell)
        elif method == "acknowledge":  # a tree has it for durable subscriptions
            with pytest.raises(InputError, match="the subscription is not durable"):
                await call()
        else:
            async with asyncio.timeout(30):
                await call()
