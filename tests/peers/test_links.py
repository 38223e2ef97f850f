"""Connections that break, over and over, while peers publish: nothing is lost, repeated, or held against anybody."""

from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

import pytest

from tests.peers.world import bus_of, free_ports, run, until
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
def test_nothing_is_lost_when_connections_break(tmp_path: Path, cut_after_bytes: int | None) -> None:
    """With a number of bytes the connection breaks in the middle of a frame."""

    async def main() -> None:
        async with AsyncExitStack() as stack:
            path, proxies = await through_proxies(stack, tmp_path, "suspect_after_ms = 60000")
            buses = [await stack.enter_async_context(bus_of(path, id)) for id in range(PEERS)]
            streams = [await stack.enter_async_context(bus.subscribe("a")) for bus in buses]
            receipts = []
            for number in range(EACH):
                for id, bus in enumerate(buses):
                    receipts.append(bus.publish_nowait("a", f"{id}-{number}".encode()))
                if number % 12 == 5:
                    before = sum(proxy.connections for proxy in proxies)
                    for proxy in proxies:
                        if cut_after_bytes is None:
                            proxy.cut()
                        else:
                            proxy.cut_after = {"to target": cut_after_bytes, "to client": cut_after_bytes}
                    await until(partial(has_connected, proxies, before + 1), "connected again")
            for receipt in receipts:
                await receipt
            expected = sorted(f"{id}-{number}" for id in range(PEERS) for number in range(EACH))
            for stream in streams:
                seen = [(await stream.next(60.0)).data.decode() for _ in range(PEERS * EACH)]
                assert sorted(seen) == expected
                for id in range(PEERS):
                    own = [text for text in seen if text.startswith(f"{id}-")]
                    assert own == [f"{id}-{number}" for number in range(EACH)]
            assert [bus.life() for bus in buses] == ["0.1", "1.1", "2.1"], "nobody was held for dead"

    run(main())


def test_a_peer_that_is_cut_off_begins_anew_and_is_heard_again(tmp_path: Path) -> None:
    async def main() -> None:
        async with AsyncExitStack() as stack:
            options = "heartbeat_ms = 100\nsuspect_after_ms = 1500"
            path, proxies = await through_proxies(stack, tmp_path, options)
            buses = [await stack.enter_async_context(bus_of(path, id)) for id in range(PEERS)]
            streams = [await stack.enter_async_context(bus.subscribe("a")) for bus in buses]
            await buses[0].publish("a", b"before")
            proxies[2].partition()  # where both others reach peer 2
            await until(
                lambda: 2 not in buses[0].live.living() and 2 not in buses[1].live.living(), "it is held for dead"
            )
            await buses[0].publish("a", b"without it")
            proxies[2].heal()
            await until(lambda: buses[2].life() != "2.1" and buses[2].live.topics == ["a"], "it has begun anew")
            await until(lambda: buses[0].live.living() == [1, 2] and buses[2].live.living() == [0, 1], "all know")
            await buses[2].publish("a", b"back")
            await buses[0].publish("a", b"after")
            for stream in streams[:2]:
                seen = [(await stream.next(60.0)).data.decode() for _ in range(4)]
                assert seen == ["before", "without it", "back", "after"]
            assert [(await streams[2].next(60.0)).data for _ in range(3)] == [b"before", b"back", b"after"]
            assert "held for dead" in streams[2].gaps[0].reason

    run(main())
