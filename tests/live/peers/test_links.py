"""Connections that break, over and over, while peers publish: nothing is lost, repeated, or held against anybody."""

import asyncio
from contextlib import AsyncExitStack, suppress
from functools import partial
from pathlib import Path

import pytest

from seriatim import TimedOut, Unsettled
from tests.live.peers.world import bus_of, peer_of, until
from tests.ports import free_ports
from tests.proxy import FaultProxy

PEERS = 3
EACH = 60


async def through_proxies(stack: AsyncExitStack, folder: Path, options: str) -> tuple[Path, list[FaultProxy]]:
    """A list of peers each of which is found at a proxy, and listens elsewhere."""
    proxies, lines = [], []
    for id, port in enumerate(free_ports(PEERS)):
        proxy = await stack.enter_async_context(FaultProxy("127.0.0.1", port))
        proxies.append(proxy)
        lines.append(f'{id} = {{ address = "{proxy.address}", bind = "127.0.0.1:{port}" }}')
    path = folder / "peers.toml"
    path.write_text("\n".join(["[peers]", *lines, "[options]", options]), encoding="utf-8")
    return path, proxies


def has_connected(proxies: list[FaultProxy], count: int) -> bool:
    return sum(proxy.connections for proxy in proxies) >= count


@pytest.mark.parametrize("cut_after_bytes", [None, 1_500])
async def test_nothing_is_lost_when_connections_break(tmp_path: Path, cut_after_bytes: int | None) -> None:
    """With a number of bytes the connection breaks in the middle of a frame."""

    async with AsyncExitStack() as stack:
        path, proxies = await through_proxies(stack, tmp_path, "suspect_after_ms = 60000")
        buses = [await stack.enter_async_context(bus_of(path, id)) for id in range(PEERS)]
        streams = [await stack.enter_async_context(bus.subscribe("a")) for bus in buses]
        receipts = []
        for number in range(EACH):
            for id, bus in enumerate(buses):
                receipts.append(bus.publish_nowait("a", f"{id}-{number}".encode()))
            if number % 12 == 5:
                # Whoever is only just connecting may not be cut, and then would not connect again.
                await until(
                    lambda: all(len(peer_of(bus).live.connected) == PEERS - 1 for bus in buses), "all are connected"
                )
                before = sum(proxy.connections for proxy in proxies)
                for proxy in proxies:
                    if cut_after_bytes is None:
                        proxy.cut()
                    else:
                        proxy.cut_after = {"to target": cut_after_bytes, "to client": cut_after_bytes}
                cuts = PEERS * (PEERS - 1) // 2 if cut_after_bytes is None else 1
                await until(partial(has_connected, proxies, before + cuts), "connected again")
        for receipt in receipts:
            await receipt
        expected = sorted(f"{id}-{number}" for id in range(PEERS) for number in range(EACH))
        for stream in streams:
            seen = [(await stream.next(60.0)).data.decode() for _ in range(PEERS * EACH)]
            assert sorted(seen) == expected
            for id in range(PEERS):
                own = [text for text in seen if text.startswith(f"{id}-")]
                assert own == [f"{id}-{number}" for number in range(EACH)]
        assert [peer_of(bus).life for bus in buses] == ["0.1", "1.1", "2.1"], "nobody was presumed dead"


async def test_two_sides_that_were_cut_apart_begin_anew_and_hear_each_other_again(tmp_path: Path) -> None:
    """Each side presumes the other dead, so all of them begin new lives when it heals. Until they have joined again
    they miss things, and say so; from then on nothing."""

    async with AsyncExitStack() as stack:
        options = "heartbeat_ms = 100\nsuspect_after_ms = 1500"
        path, proxies = await through_proxies(stack, tmp_path, options)
        buses = [await stack.enter_async_context(bus_of(path, id)) for id in range(PEERS)]
        streams = [await stack.enter_async_context(bus.subscribe("a")) for bus in buses]
        await buses[0].publish("a", b"before")
        proxies[2].partition()  # where both others reach peer 2
        apart = [[1], [0], []]
        await until(
            lambda: [list(peer_of(bus).live.machine.peer.living()) for bus in buses] == apart,
            "each side presumes the other dead",
        )
        await buses[0].publish("a", b"without it")
        proxies[2].heal()
        assert [(await stream.next(60.0)).data for stream in streams] == [b"before"] * PEERS
        assert [(await stream.next(60.0)).data for stream in streams[:2]] == [b"without it"] * 2
        # How long joining again takes is open: they publish until each has heard each of the others.
        heard: list[list[str]] = [[] for _ in buses]
        everybody = {str(id) for id in range(PEERS)}
        number = 0
        while any({text.split("-")[0] for text in texts} != everybody for texts in heard):
            number += 1
            assert number <= 400, f"they never heard each other again: {heard}"
            for id, bus in enumerate(buses):
                with suppress(Unsettled):
                    await bus.publish("a", f"{id}-{number}".encode())
            for texts, stream in zip(heard, streams, strict=True):
                with suppress(TimedOut):
                    while True:
                        texts.append((await stream.next(0.02)).data.decode())
        await asyncio.gather(*(bus.publish("a", f"last-{id}".encode()) for id, bus in enumerate(buses)))
        for id, (texts, stream) in enumerate(zip(heard, streams, strict=True)):
            while not everybody <= {text.removeprefix("last-") for text in texts if text.startswith("last-")}:
                texts.append((await stream.next(60.0)).data.decode())
            assert len(set(texts)) == len(texts), "nothing comes twice"
            for source in everybody:
                numbers = [int(text.split("-")[1]) for text in texts if text.startswith(f"{source}-")]
                assert numbers == sorted(numbers)
                assert numbers, f"peer {id} hears peer {source} again"
            assert peer_of(buses[id]).life != f"{id}.1"
            assert "presumed dead" in stream.gaps[0].reason
