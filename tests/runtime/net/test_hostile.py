"""Hostile input on the port: that connection ends, with a reason and a count, and nobody else notices.

Each attack runs beside a client that must still be answered after it; then a new client connects, too.
"""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from seriatim.live.tree import wire
from seriatim.model import Address
from seriatim.order import SequencingTree
from seriatim.protocols.link import Frame
from seriatim.protocols.tree import SequencerNode, TreeOptions
from seriatim.protocols.tree.messages import (
    Announce,
    Granted,
    Inquire,
    JoinId,
    Pass,
    Refresh,
    Settled,
    Subscribe,
    Ticket,
    Update,
)
from seriatim.runtime.clock import Clock
from seriatim.runtime.driver import Driver
from seriatim.runtime.journal.interface import MemoryJournal
from seriatim.runtime.net.connection import TransportOptions
from seriatim.runtime.net.dialer import DialerOptions
from seriatim.runtime.net.listener import Listener, ListenerOptions
from seriatim.runtime.net.switchboard import Switchboard
from seriatim.runtime.net.wire import (
    HELLO_BYTES_MAX,
    VERSION,
    Envelope,
    Hello,
    Ping,
    Refusal,
    Welcome,
    encode_frame,
)
from tests.runtime.net.hosts import CLUSTER, WAIT_S, Asker, dialing, serving, until, works
from tests.waiting import a_moment

PATIENT = TransportOptions(
    hello_timeout_s=60.0, silence_s=60.0, drain_timeout_s=60.0, close_timeout_s=60.0, output_bytes_high=10_000
)
OPTIONS = ListenerOptions(transport=PATIENT, addresses_max=10, strangers_max=20, client_frame_bytes_max=100_000)
TICKET = Ticket(1, "t", 1)


class Raw:
    """A peer that sends whatever it likes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    @classmethod
    async def connect(cls, listener: Listener) -> "Raw":
        host, _, port = listener.address.rpartition(":")
        return cls(*await asyncio.open_connection(host, int(port)))

    async def greet(self, name: Address = "mallory", role: Any = "client") -> "Raw":
        """Say hello as one should, and be welcome."""
        self.send(Hello(VERSION, CLUSTER, role, name))
        assert isinstance(await self.frame(), Welcome)
        return self

    def send(self, *frames: Any) -> None:
        """Frames, or bytes as they are."""
        for frame in frames:
            self.writer.write(frame if isinstance(frame, bytes) else encode_frame(frame))

    async def frame(self) -> Any:
        length = int.from_bytes(await asyncio.wait_for(self.reader.readexactly(4), WAIT_S), "big")
        return wire.TREE.for_client(await self.reader.readexactly(length))

    async def reason(self) -> str:
        """Why it was disconnected; "": without a word."""
        try:
            while True:
                frame = await self.frame()
                if isinstance(frame, Refusal):
                    return frame.reason
        except (asyncio.IncompleteReadError, ConnectionError):
            return ""
        finally:
            self.writer.close()


def with_bounds(**bounds: float) -> ListenerOptions:
    """A busy machine reaches no bound of the others: a test of a bound shortens that one."""
    return replace(OPTIONS, transport=replace(PATIENT, **bounds))


@asynccontextmanager
async def under_attack(options: ListenerOptions = OPTIONS) -> AsyncIterator[Listener]:
    """A server with a well-behaved client, which must not notice anything."""
    problems: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: problems.append(context))
    brisk = DialerOptions(transport=TransportOptions(ping_s=0.05, silence_s=WAIT_S))
    async with (
        serving(options=options) as listener,
        dialing(listener.address, name="alice", options=brisk) as (dialer, asker),
    ):
        await dialer.wait_connected("root", WAIT_S)
        asker.ask(1)
        await until(lambda: asker.requests() == [1], "an answer before the attack")
        (guest,) = listener.guests
        yield listener
        asker.ask(2)
        await until(lambda: asker.requests() == [1, 2], "an answer after the attack")
        assert guest in listener.guests, "the client before the attack was disconnected"
        await works(listener)
        await until(lambda: not listener.switchboard.reaches("mallory"), "nothing is left of the attacker")
    assert not problems, "something was raised out of the protocol"


# ── before the hello ──────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("seed", range(5))
async def test_random_bytes(seed: int) -> None:
    async with under_attack() as listener:
        for size in (1, 3, 4, 5, 100, 10_000):
            raw = await Raw.connect(listener)
            raw.send(random.Random(seed * 1_000 + size).randbytes(size))
            if size < 4:
                raw.writer.write_eof()
            await raw.reason()


@pytest.mark.parametrize(
    ("data", "told"),
    [
        ((2**32 - 1).to_bytes(4, "big"), "a frame of 4294967295 bytes is announced"),
        ((HELLO_BYTES_MAX + 1).to_bytes(4, "big"), f"at most {HELLO_BYTES_MAX} are taken"),
        (bytes(4), "a frame of 0 bytes cannot be read"),
        (encode_frame(Ping()), "cannot be read"),
        (encode_frame(Envelope("mallory", "root", TICKET)), "cannot be read"),
        (b"GET / HTTP/1.1\r\n\r\n", "bytes is announced"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "bytes is announced"),
        (encode_frame(Hello(VERSION + 1, CLUSTER, "client", "mallory")), f"it speaks version {VERSION + 1}"),
        (encode_frame(Hello(VERSION, CLUSTER, "king", "mallory")), "Invalid enum value 'king'"),  # type: ignore[arg-type]
        (encode_frame(Hello(VERSION, CLUSTER, "client", 7)), "Expected `str`, got `int`"),  # type: ignore[arg-type]
        (encode_frame(Hello(VERSION, CLUSTER, "client", "\x00")), "printable"),
    ],
)
async def test_what_is_no_hello(data: bytes, told: str) -> None:
    async with under_attack() as listener:
        raw = await Raw.connect(listener)
        raw.send(data)
        assert told in await raw.reason()
        assert sum(listener.violations.values()) + sum(listener.refused.values()) == 1


async def test_a_hello_that_comes_one_byte_at_a_time_and_never_ends() -> None:
    async with under_attack(with_bounds(hello_timeout_s=2.0)) as listener:
        raw = await Raw.connect(listener)
        reason = asyncio.ensure_future(raw.reason())
        for byte in (1_000).to_bytes(4, "big") + bytes(1_000):
            if reason.done():
                break
            raw.send(bytes([byte]))
            await a_moment(0.01)
        assert await reason == "no hello within 2 s"
        assert listener.refused["no hello"] == 1


async def test_more_strangers_than_there_is_room_for() -> None:
    """The oldest go first, so that whoever says who it is gets in."""

    async with under_attack(with_bounds(hello_timeout_s=2.0)) as listener:
        strangers = [await Raw.connect(listener) for _ in range(3 * OPTIONS.strangers_max)]
        await works(listener, "bob")
        reasons = await asyncio.gather(*(stranger.reason() for stranger in strangers))
        assert set(reasons) <= {"", "no hello within 2 s"}
        assert listener.refused["too many strangers"] >= OPTIONS.strangers_max


async def test_more_clients_than_there_is_room_for() -> None:
    async with under_attack(ListenerOptions(clients_max=3)) as listener:
        first = await (await Raw.connect(listener)).greet("first")
        second = await (await Raw.connect(listener)).greet("second")
        raw = await Raw.connect(listener)
        raw.send(Hello(VERSION, CLUSTER, "client", "mallory"))
        refusal = await raw.frame()
        assert refusal == Refusal("3 clients are connected already", retry=True)
        for each in (first, second, raw):
            each.writer.close()
        await until(lambda: listener.clients == 1, "they are gone")


# ── after the hello ───────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("frame", "told"),
    [
        (random.Random(1).randbytes(20), "is announced"),
        (bytes(4), "a frame of 0 bytes"),
        ((100_001).to_bytes(4, "big"), "at most 100000 are taken"),
        (len(b"\x91" * 90_000).to_bytes(4, "big") + b"\x91" * 90_000, "cannot be read"),
        (Hello(VERSION, CLUSTER, "client", "mallory"), "cannot be read"),
        (Welcome(VERSION, CLUSTER, ["root"]), "cannot be read"),
        (Refusal("no, you"), "cannot be read"),
        (Envelope("alice/asker", "root", TICKET), "client 'mallory' speaks for 'alice/asker'"),
        (Envelope("mallory2", "root", TICKET), "speaks for 'mallory2'"),
        (Envelope("", "root", TICKET), "speaks for ''"),
        (Envelope("root", "root", TICKET), "speaks for 'root'"),
        (Envelope("broker", "root", TICKET), "speaks for 'broker'"),
        (Envelope("mallory/" + "x" * 600, "root", TICKET), "is not an address of a client"),
        (Envelope("mallory", "alice/asker", TICKET), "'alice/asker' is not a node"),
        (Envelope("mallory", "mallory", TICKET), "'mallory' is not a node"),
        (Envelope("mallory", "left", TICKET), "node 'left' does not run here"),
        (Envelope("mallory", "root", Granted(1, "t", 1, 1, {})), "cannot be read"),
        (Envelope("mallory", "root", Frame(9, 1, 0, Pass("t", 1, 9, "root", {}))), "cannot be read"),
        (Envelope("mallory", "root", {"type": "Ticket", "request": "1", "topic": "t", "count": 1}), "Expected `int`"),
        (Envelope("mallory", "root", {"type": "Forget", "subscriber": "alice"}), "Invalid value 'Forget'"),
        (Envelope("mallory", "root", None), "cannot be read"),
    ],
)
async def test_what_a_client_may_not_say(frame: Any, told: str) -> None:
    async with under_attack() as listener:
        raw = await (await Raw.connect(listener)).greet()
        raw.send(Envelope("mallory", "root", TICKET))
        assert isinstance((await raw.frame()).message, Granted)
        raw.send(frame, Envelope("mallory", "root", TICKET))
        assert told in await raw.reason()
        assert listener.violations["client"] + listener.refused["elsewhere"] == 1


async def test_deep_nesting_where_the_decoder_skips() -> None:
    async with under_attack() as listener:
        raw = await (await Raw.connect(listener)).greet()
        body = b"\x94\xa8Envelope\xa7mallory\xa4root\x82\xa4type\xa6Ticket\xa1x" + b"\x91" * 90_000
        raw.send(len(body).to_bytes(4, "big") + body)
        assert "recursion" in await raw.reason()


async def test_whoever_does_not_hang_up_after_the_last_word_is_disconnected() -> None:
    async with under_attack(with_bounds(close_timeout_s=0.2)) as listener:
        raw = await (await Raw.connect(listener)).greet()
        raw.send(Envelope("alice", "root", TICKET))
        assert isinstance(await raw.frame(), Refusal)
        raw.send(Envelope("mallory", "root", TICKET))
        with suppress(ConnectionError):
            assert await asyncio.wait_for(raw.reader.read(), WAIT_S) == b"", "it was answered"
        raw.writer.close()


async def test_hanging_up_in_the_middle_of_the_last_word() -> None:
    """Resets, at every moment around a refusal."""

    async with under_attack() as listener:
        for turns in range(30):
            raw = await (await Raw.connect(listener)).greet()
            raw.send(Envelope("alice", "root", TICKET), bytes(100_000))
            for _ in range(turns % 10):
                await asyncio.sleep(0)
            raw.writer.transport.abort()
        await until(lambda: listener.clients == 1, "all are forgotten")


async def test_more_addresses_than_allowed() -> None:
    async with under_attack() as listener:
        raw = await (await Raw.connect(listener)).greet()
        for number in range(OPTIONS.addresses_max + 1):
            raw.send(Envelope(f"mallory/{number}", "root", TICKET))
        assert await raw.reason() == "more than 10 addresses on one connection"
        assert not any(listener.switchboard.reaches(f"mallory/{number}") for number in range(11))
        assert set(listener.owners) == {"alice/asker"}


async def test_an_address_of_this_process_cannot_be_taken() -> None:
    async with under_attack() as listener:
        Asker(listener.switchboard, "mallory/inside")
        raw = await (await Raw.connect(listener)).greet()
        raw.send(Envelope("mallory/inside", "root", TICKET))
        assert await raw.reason() == "'mallory/inside' belongs to this process"
        assert listener.switchboard.reaches("mallory/inside")


async def test_a_client_whose_name_begins_like_a_node_cannot_speak_for_it() -> None:
    tree = SequencingTree({"root": None, "mallory/node": "root"}, {}, default_home="root")
    async with serving(tree=tree) as listener:
        raw = await (await Raw.connect(listener)).greet()
        raw.send(Envelope("mallory/node", "root", TICKET))
        assert await raw.reason() == "'mallory/node' is not an address of a client"
        await works(listener)


async def test_the_reason_arrives_although_more_was_on_its_way() -> None:
    """Closing a socket with unread input would reset the connection, and the reason would be lost."""

    async with under_attack() as listener:
        for _ in range(10):
            raw = await (await Raw.connect(listener)).greet()
            raw.send(Envelope("alice", "root", TICKET), bytes(2_000_000))
            assert await raw.reason() == "client 'mallory' speaks for 'alice'"


@pytest.mark.parametrize("cut", [2, 4, 10])
async def test_half_a_frame_and_then_silence(cut: int) -> None:
    """Also if it trickles: only a whole frame is a sign of life."""

    async with under_attack(with_bounds(silence_s=2.0, ping_s=0.1)) as listener:
        raw = await (await Raw.connect(listener)).greet()
        frame = encode_frame(Envelope("mallory", "root", Ticket(1, "t" * 1_000, 1)))
        raw.send(frame[:cut])
        reason = asyncio.ensure_future(raw.reason())
        for byte in frame[cut : cut + 500]:
            if reason.done():
                break
            raw.send(bytes([byte]))
            await a_moment(0.01)
        assert await reason == ""
        await until(lambda: listener.clients == 1, "the connection is forgotten")


async def test_half_a_frame_and_then_the_end() -> None:
    async with under_attack() as listener:
        for cut in (1, 4, 10):
            raw = await (await Raw.connect(listener)).greet()
            raw.send(encode_frame(Envelope("mallory", "root", TICKET))[:cut])
            raw.writer.close()
        await until(lambda: listener.clients == 1, "they are forgotten")


async def test_a_flood_by_somebody_who_never_reads() -> None:
    async with under_attack(with_bounds(drain_timeout_s=0.3)) as listener:
        raw = await (await Raw.connect(listener)).greet()
        guest = next(guest for guest in listener.guests if guest.name == "mallory")
        flood = encode_frame(Envelope("mallory", "root", Ticket(1, "t" * 5_000, 1))) * 100
        most = 0
        try:
            while guest.open:
                raw.send(flood)
                await asyncio.wait_for(raw.writer.drain(), 0.05)
                most = max(most, guest.unsent)
        except (TimeoutError, ConnectionError):
            await until(lambda: not guest.open, "disconnected")
        assert most < 5_000_000
        raw.writer.transport.abort()


async def test_a_flood_of_pings_and_of_connections() -> None:
    async with under_attack() as listener:
        raw = await (await Raw.connect(listener)).greet()
        raw.send(*[Ping()] * 20_000)
        raw.send(Envelope("mallory", "root", TICKET))
        assert isinstance((await raw.frame()).message, Granted)
        raw.writer.close()
        for number in range(200):
            again = await Raw.connect(listener)
            again.send(Hello(VERSION, CLUSTER, "client", f"mallory{number}"))
            again.writer.transport.abort()
        await until(lambda: listener.clients == 1, "all are forgotten")


# ── as a node ─────────────────────────────────────────────────────────────────────────────────────────────────────

LINK: Frame[Any] = Frame(1, 1, 0)


@pytest.mark.parametrize(
    ("frame", "told"),
    [
        (Envelope("right", "root", LINK), "node 'left' speaks for 'right'"),
        (Envelope("alice/asker", "root", LINK), "node 'left' speaks for 'alice/asker'"),
        (Envelope("left", "alice/asker", LINK), "is not a node"),
        (Envelope("left", "right", LINK), "does not run here"),
        (Envelope("left", "root", TICKET), "cannot be read"),
        (Envelope("left", "root", Announce("t", 1, "root", JoinId("alice", 1, "t"))), "cannot be read"),
    ],
)
async def test_what_a_node_may_not_say(frame: Any, told: str) -> None:
    async with under_attack() as listener:
        raw = await (await Raw.connect(listener)).greet("left", "node")
        raw.send(frame)
        assert told in await raw.reason()
        await until(lambda: not listener.switchboard.reaches("left"), "it is unplugged")


async def test_a_node_may_not_speak_to_a_node_that_is_not_its_neighbour() -> None:
    async with serving("root", "right") as listener:
        raw = await (await Raw.connect(listener)).greet("left", "node")
        raw.send(Envelope("left", "right", LINK))
        assert await raw.reason() == "node 'left' speaks to 'right', which is not its neighbour"
        await works(listener)


# ── through to the real machine ───────────────────────────────────────────────────────────────────────────────────

NUMBERS = st.sampled_from([0, 1, 2, 3, -1, -(2**63), 2**31, 2**63 - 1, 2**63, 2**64 - 1])
TOPICS = st.sampled_from(["t", "u", "", "unknown", "x" * 1_000, "\x00", "root", "broker"])
SETS = st.frozensets(TOPICS, max_size=4)
NONSENSE = st.one_of(
    st.builds(Ticket, NUMBERS, TOPICS, NUMBERS),
    st.builds(Settled, TOPICS, NUMBERS),
    st.builds(Subscribe, NUMBERS, TOPICS, SETS, SETS),
    st.builds(Update, NUMBERS, SETS),
    st.builds(Refresh, NUMBERS, st.sampled_from([0.0, -1.0, 1e308, float("inf"), float("nan")])),
    st.builds(Inquire, TOPICS, NUMBERS),
)


@pytest.mark.parametrize("mode", ["log", "ticket"])
@settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow])
@given(messages=st.lists(st.tuples(st.sampled_from(["mallory", "mallory/x"]), NONSENSE), min_size=1, max_size=30))
async def test_well_formed_nonsense_of_a_client_does_not_stop_a_node(
    mode: Any, messages: list[tuple[Address, Any]]
) -> None:
    switchboard = Switchboard()
    tree = SequencingTree.single(["t", "u"])
    machine = SequencerNode(tree, "root", TreeOptions(mode=mode))
    driver = Driver(
        "root",
        machine,
        Clock(),
        send=lambda source, target, message: switchboard.send(source, target, message),
        journal=MemoryJournal(),
        encode_state=lambda: msgspec.msgpack.encode(machine.state),
        snapshot_bytes_min=1,
    )
    switchboard.attach("root", driver.deliver)
    driver.start()
    listener = Listener(switchboard, tree, cluster=CLUSTER, decoders=wire.TREE)
    await listener.start()
    raw = await (await Raw.connect(listener)).greet()
    for source, message in messages:
        raw.send(Envelope(source, "root", message))
    await raw.writer.drain()
    await until(lambda: driver.steps == len(messages) or driver.failed.done(), "all steps")
    async with dialing(listener.address) as (dialer, asker):
        await dialer.wait_connected("root", WAIT_S)
        asker.send("root", Inquire("t", 1))
        await until(lambda: len(asker.answers) == 1 or driver.failed.done(), "an answer for somebody else")
    await driver.settled()  # raises what ended it
    raw.writer.close()
    await listener.stop()
    await driver.stop()
