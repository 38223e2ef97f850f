"""Dialer and listener over real sockets, with what a network does in between."""

from typing import Any

import pytest

from seriatim.model import ConnectionFailed, InputError
from seriatim.runtime.net.connection import TransportOptions
from seriatim.runtime.net.dialer import DialerOptions, Peer
from seriatim.runtime.net.listener import ListenerOptions
from tests.proxy import TO_CLIENT, FaultProxy
from tests.runtime.net.hosts import WAIT_S, dialing, serving, until, works

# Silence is noticed soon, but a busy machine is not silent.
BRISK = TransportOptions(ping_s=0.05, silence_s=1.0, connect_timeout_s=1.0, hello_timeout_s=1.0)


class ClosedInSecret:
    """A transport as uvloop leaves it now and then: closed, without `connection_lost`."""

    def __init__(self, transport: Any) -> None:
        self._transport = transport

    def write(self, data: bytes) -> None:
        raise RuntimeError(f"unable to perform operation on {self._transport!r}; the handler is closed")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


@pytest.mark.both_loops
async def test_tickets_are_answered_in_order() -> None:
    async with serving() as listener, dialing(listener.address) as (dialer, asker):
        await dialer.wait_connected("root", WAIT_S)
        for request in range(1_000):
            asker.ask(request)
        await until(lambda: len(asker.answers) == 1_000, "all answers")
        assert asker.requests() == list(range(1_000))
        assert {source for source, _ in asker.answers} == {"root"}
        assert listener.clients == 1
        assert listener.guests and not listener.violations
        await dialer.stop()
        await until(lambda: listener.clients == 0, "the listener notices that the client is gone")
        assert listener.received >= 1_000
        assert not listener.switchboard.reaches(asker.address)


@pytest.mark.both_loops
async def test_a_frame_larger_than_any_buffer_arrives_whole() -> None:
    """Pieces of 64 KiB, through a proxy that delays each of them."""

    async with serving() as listener, FaultProxy.before(listener.address) as proxy:
        proxy.delay_s = 0.001
        async with dialing(proxy.address) as (dialer, asker):
            await dialer.wait_connected("root", WAIT_S)
            asker.ask(1, topic="t" * 1_000_000)
            asker.ask(2)
            await until(lambda: asker.requests() == [1, 2], "both answers")


async def test_a_message_that_no_server_takes_is_dropped_here_and_the_connection_stays() -> None:
    options = ListenerOptions(client_frame_bytes_max=10_000)
    async with serving(options=options) as listener, dialing(listener.address) as (dialer, asker):
        await dialer.wait_connected("root", WAIT_S)
        asker.ask(1, topic="t" * 20_000)
        asker.ask(2)
        asker.ask(2**64)  # does not fit the format
        asker.ask(3)
        await until(lambda: asker.requests() == [2, 3], "the others")
        assert not listener.violations


@pytest.mark.both_loops
async def test_a_listener_stops_although_a_socket_is_closed_and_nobody_was_told() -> None:
    """uvloop raises when the last word is written to it. Seen in a soak, when a station stopped."""
    async with serving() as listener, dialing(listener.address) as (dialer, asker):
        await dialer.wait_connected("root", WAIT_S)
        asker.ask(1)
        await until(lambda: asker.requests() == [1], "an answer")
        (visitor,) = listener._all
        visitor._transport = ClosedInSecret(visitor._transport)  # type: ignore[assignment]
        await listener.stop()
        assert listener.clients == 0
        assert visitor.closed.done()


@pytest.mark.both_loops
async def test_it_connects_again_after_a_cut() -> None:
    connects: list[str] = []
    async with (
        serving() as listener,
        FaultProxy.before(listener.address) as proxy,
        dialing(proxy.address, on_connect=connects.append) as (dialer, asker),
    ):
        for attempt in range(1, 4):
            await dialer.wait_connected("root", WAIT_S)
            assert connects == ["root"] * attempt
            asker.ask(attempt)
            await until(lambda: attempt in asker.requests(), "an answer on the new connection")  # noqa: B023
            proxy.cut()
            await until(lambda: not dialer.connected("root"), "the cut is noticed")


@pytest.mark.parametrize("count", [0, 3, 20, 300])
async def test_a_cut_in_the_middle_of_a_frame_loses_only_what_was_under_way(count: int) -> None:
    async with serving() as listener:
        async with FaultProxy.before(listener.address) as proxy, dialing(proxy.address) as (dialer, asker):
            await dialer.wait_connected("root", WAIT_S)
            proxy.cut_after[TO_CLIENT] = count
            for request in range(100):
                asker.ask(request)
            await until(lambda: not dialer.connected("root"), "the cut")
            await dialer.wait_connected("root", WAIT_S)
            before = len(asker.answers)
            assert asker.requests() == list(range(before))
            assert before < 100
            asker.ask(100)
            await until(lambda: asker.requests()[before:] == [100], "an answer on the new connection")
        assert not listener.violations


@pytest.mark.both_loops
async def test_a_silent_network_is_noticed_by_both_sides() -> None:
    options = DialerOptions(retry_min_s=0.01, retry_max_s=0.1, transport=BRISK)
    async with (
        serving(transport=BRISK) as listener,
        FaultProxy.before(listener.address) as proxy,
        dialing(proxy.address, options=options) as (dialer, asker),
    ):
        await dialer.wait_connected("root", WAIT_S)
        guest = next(iter(listener.guests))
        pings = int(1.2 * BRISK.silence_s / BRISK.ping_s)
        await until(lambda: min(guest.received, guest.sent) > pings, "pings for longer than silence may last")
        assert proxy.connections == 1, "pings alone keep a connection"
        proxy.partition()
        await until(lambda: not dialer.connected("root"), "the client notices")
        await until(lambda: listener.clients == 0, "the server notices")
        assert "nothing was heard" in dialer.problems()["root"] or "no answer" in dialer.problems()["root"]
        proxy.heal()
        await dialer.wait_connected("root", WAIT_S)
        asker.ask(1)
        await until(lambda: asker.requests() == [1], "an answer after the partition")


@pytest.mark.both_loops
async def test_a_peer_that_does_not_read_is_disconnected_and_others_are_not_harmed() -> None:
    transport = TransportOptions(drain_timeout_s=0.3, output_bytes_high=1_000)
    async with (
        serving(transport=transport) as listener,
        FaultProxy.before(listener.address) as proxy,
        dialing(proxy.address) as (dialer, asker),
    ):
        await dialer.wait_connected("root", WAIT_S)
        proxy.paused.add(TO_CLIENT)
        guest = next(iter(listener.guests))

        def flooded() -> bool:
            """Answers repeat the topic, so they are as large as the questions."""
            for request in range(100 if dialer.connected("root") else 0):
                asker.ask(request, topic="t" * 10_000)
            assert guest.unsent < 20_000_000, "it went on reading questions"
            return not guest.open

        await until(flooded, "it is disconnected")
        await works(listener)


@pytest.mark.both_loops
async def test_nothing_is_read_while_the_nodes_are_behind() -> None:
    waiting = looks = 0
    options = ListenerOptions(backlog_max=10)

    def backlog() -> int:
        nonlocal looks
        looks += 1
        return waiting

    async def some_looks() -> None:
        enough = looks + 3
        await until(lambda: looks >= enough, "it looks again whether it may go on")

    async with (
        serving(options=options, backlog=backlog) as listener,
        dialing(listener.address) as (dialer, asker),
    ):
        await dialer.wait_connected("root", WAIT_S)
        waiting = 11
        asker.ask(1)
        await until(lambda: asker.requests() == [1], "what was read is handled")
        asker.ask(2)
        await until(lambda: listener.throttle.stops == 1, "it stops reading")
        await some_looks()
        assert asker.requests() == [1]
        waiting = 6
        await some_looks()
        assert asker.requests() == [1], "it goes on at half, not before"
        waiting = 5
        await until(lambda: asker.requests() == [1, 2], "it goes on")


async def test_a_stopped_server_sends_everybody_away_and_a_new_one_gets_them_back() -> None:
    async with serving() as listener, dialing(listener.address) as (dialer, asker):
        await dialer.wait_connected("root", WAIT_S)
        await listener.stop()
        await until(lambda: not dialer.connected("root"), "sent away")
        async with serving(bind=listener.address):
            await dialer.wait_connected("root", WAIT_S)
            asker.ask(1)
            await until(lambda: asker.requests() == [1], "an answer of the new server")


async def test_an_address_in_use_is_explained() -> None:
    async with serving() as listener:
        with pytest.raises(ConnectionFailed, match=f"cannot listen on {listener.address}.*another process uses it"):
            async with serving(bind=listener.address):
                pass


@pytest.mark.parametrize("bind", ["127.0.0.1", "127.0.0.1:http", "127.0.0.1:70000", ":80", "::1:80", "a b:1"])
async def test_an_address_that_is_none_is_explained(bind: str) -> None:
    with pytest.raises(InputError, match='write "host:port"'):
        async with serving(bind=bind):
            pass
    with pytest.raises(InputError, match="addresses of node 'root'"):
        Peer("root", (bind,))


@pytest.mark.parametrize("bind", ["localhost:0", "[::1]:0"])
async def test_other_hosts_than_loopback_in_figures(bind: str) -> None:
    try:
        async with serving(bind=bind) as listener:
            assert not listener.address.endswith(":0")
            await works(listener)
    except ConnectionFailed as error:
        assert bind.startswith("[::1]")
        pytest.skip(f"no IPv6 here: {error}")


def test_options_out_of_range_are_refused() -> None:
    for wrong in (
        lambda: TransportOptions(ping_s=0),
        lambda: TransportOptions(ping_s=10, silence_s=10),
        lambda: ListenerOptions(clients_max=0),
        lambda: DialerOptions(retry_min_s=-1),
        lambda: Peer("root", ()),
    ):
        with pytest.raises(InputError):
            wrong()
