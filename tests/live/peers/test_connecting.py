"""Which connections a running peer admits, and what ends a connection: real sockets, and nobody else is affected."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from seriatim.live.peers import LivePeer, PeersConfig, load_peers, observe
from seriatim.live.peers.wire import PEERS
from seriatim.live.system import SystemHost
from seriatim.model import APPLICATION, Event, Fenced, InputError, Notification
from seriatim.protocols.link import Frame
from seriatim.protocols.machine import Payload
from seriatim.protocols.vcube.cube import life_of
from seriatim.protocols.vcube.linked import Parcel
from seriatim.protocols.vcube.messages import Alive, Born, Cast, News, Pub, Publish, Subscribe
from seriatim.runtime.journal.interface import Journal, MemoryJournal
from seriatim.runtime.net.security import SecurityOptions
from seriatim.runtime.net.wire import VERSION, Envelope, Framing, Hello, Refusal, Welcome, encode_frame
from tests.certificates import Certificates
from tests.live.peers.world import WAIT_S, until, write_peers

TOKEN = "0123456789abcdef-0123456789"


class Running:
    """A peer in this process, and what it told its application."""

    def __init__(self, config: PeersConfig, id: int, journal: Journal | None = None) -> None:
        self.told: list[Payload] = []
        self.live = LivePeer(config, id, self.told.extend, journal=journal or MemoryJournal())

    async def die(self) -> None:
        """As after kill -9: nobody is told."""
        await SystemHost.stop(self.live)

    def seen(self) -> list[str]:
        return [notice.event.id for notice in self.told if isinstance(notice, Notification)]


@asynccontextmanager
async def peers(config: PeersConfig, *ids: int) -> AsyncIterator[list[Running]]:
    running = [Running(config, id) for id in ids]
    try:
        for each in running:
            await each.live.start()
        yield running
    finally:
        for each in running:
            await each.live.stop()


class Stranger:
    """Somebody who speaks the wire format by hand."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self._framing = Framing(1 << 24)
        self._frames: list[Any] = []

    @classmethod
    async def to(cls, address: str) -> "Stranger":
        host, _, port = address.rpartition(":")
        return cls(*await asyncio.open_connection(host, int(port)))

    def say(self, frame: Any) -> None:
        self.writer.write(encode_frame(frame))

    async def hear(self) -> Any:
        """The next frame that is no ping; None: hung up."""
        async with asyncio.timeout(WAIT_S):
            while True:
                while self._frames:
                    frame = self._frames.pop(0)
                    if isinstance(frame, Welcome | Refusal):
                        return frame
                data = await self.reader.read(65_536)
                if not data:
                    return None
                self._frames += [PEERS.for_node(body) for body in self._framing.feed(data)]

    async def hear_all(self) -> Refusal | None:
        """Until the other side hangs up, or says why it will: its last word."""
        while (frame := await self.hear()) is not None:
            if isinstance(frame, Refusal):
                return frame  # it would wait for us to hang up
        return None

    def close(self) -> None:
        self.writer.close()


def hello_of(config: PeersConfig, id: int, **changes: Any) -> Hello:
    digest = config.description.digest
    return replace(Hello(VERSION, config.cluster, "peer", f"peer{id}", "", 1, "process", digest), **changes)


@pytest.mark.parametrize(
    ("changes", "kind", "reason", "retry"),
    [
        ({"version": 99}, "version", "it speaks version 99", False),
        ({"cluster": "other"}, "cluster", "this is 'seriatim', not 'other'", False),
        ({"name": "peer9"}, "id", "there is no 'peer9' in the list of peers here", False),
        ({"name": "nobody"}, "id", "there is no 'nobody'", False),
        ({"name": "peer2"}, "id", "peer 2 is this process; two processes cannot have the same id", False),
        ({"digest": "0"}, "description", "its list of peers or its options differ from those here", False),
        ({"role": "client"}, "role", "accepts peers, not a client", False),
    ],
)
async def test_who_does_not_belong_is_told_why(
    tmp_path: Path, changes: dict[str, Any], kind: str, reason: str, retry: bool
) -> None:
    config = load_peers(write_peers(tmp_path, 3))
    async with peers(config, 1, 2) as (one, two):
        await until(lambda: two.live.connected == [1], "connected")
        stranger = await Stranger.to(two.live.address)
        stranger.say(hello_of(config, 0, **changes))
        refusal = await stranger.hear()
        assert isinstance(refusal, Refusal) and reason in refusal.reason and refusal.retry is retry
        stranger.close()
        assert two.live.refusals == {kind: 1}
        assert two.live.connected == [1] and one.live.connected == [2]


async def test_a_peer_list_that_differs_is_named_by_the_one_that_connects(tmp_path: Path) -> None:
    path = write_peers(tmp_path, 2)
    config = load_peers(path)
    other = tmp_path / "other"
    other.mkdir()
    (other / "peers.toml").write_text(path.read_text().replace("heartbeat_ms = 200", "heartbeat_ms = 250"))
    one = Running(load_peers(other / "peers.toml"), 0)
    async with peers(config, 1):
        await one.live.start()
        try:
            named = "options.heartbeat_ms is 200.0 there and 250.0 here"
            await until(lambda: any(named in line for line in one.live.explain()), "the difference is named")
        finally:
            await one.live.stop()


async def test_of_two_processes_with_one_id_the_connected_one_stays_and_a_restart_is_let_in(tmp_path: Path) -> None:
    """Also against a later life, which a copy of its journal gives: for the others its peers would seem dead."""
    config = load_peers(write_peers(tmp_path, 3))
    async with peers(config, 2) as (two,):
        first = await Stranger.to(two.live.address)
        first.say(hello_of(config, 0, process="first"))
        assert isinstance(await first.hear(), Welcome)
        for epoch in (1, 2):
            second = await Stranger.to(two.live.address)
            second.say(hello_of(config, 0, process="second", epoch=epoch))
            refusal = await second.hear()
            assert isinstance(refusal, Refusal) and refusal.retry
            assert "another process is peer 0 and is connected; two processes cannot have the same id" in refusal.reason
            second.close()
        first.close()
        await until(lambda: two.live.connected == [], "the first one is gone")
        third = await Stranger.to(two.live.address)
        third.say(hello_of(config, 0, process="third"))
        refusal = await third.hear()
        assert isinstance(refusal, Refusal) and "another process is peer 0, in its life 0.1" in refusal.reason
        third.close()
        fourth = await Stranger.to(two.live.address)
        fourth.say(hello_of(config, 0, process="fourth", epoch=2))
        assert isinstance(await fourth.hear(), Welcome)
        fourth.close()


async def test_a_connection_that_only_looks_open_does_not_keep_a_restarted_peer_out(tmp_path: Path) -> None:
    """As after a power failure: nobody closed it. It counts until its process is presumed dead."""
    config = load_peers(write_peers(tmp_path, 3))
    async with peers(config, 2) as (two,):
        silent = await Stranger.to(two.live.address)
        silent.say(hello_of(config, 0, process="silent"))
        assert isinstance(await silent.hear(), Welcome)
        await until(lambda: two.live.presumes_dead(0), "it says nothing")
        again = await Stranger.to(two.live.address)
        again.say(hello_of(config, 0, process="again", epoch=2))
        assert isinstance(await again.hear(), Welcome)
        for stranger in (silent, again):
            stranger.close()


@pytest.mark.parametrize(("lost", "fresh"), [(1, 2), (2, 1)], ids=["dials", "is dialed"])
async def test_a_peer_that_lost_its_journal_goes_on_whoever_has_met_its_last_life(
    tmp_path: Path, lost: int, fresh: int
) -> None:
    """One peer began after that life had ended: others have told it of that life, and it still counts."""
    config = load_peers(write_peers(tmp_path, 3, "heartbeat_ms = 200\nsuspect_after_ms = 5000\n"))
    journals = [MemoryJournal() for _ in range(3)]
    running = [Running(config, id, journals[id]) for id in range(3)]
    try:
        for each in running:
            await each.live.start()
        await until(lambda: running[lost].live.connected == [0, fresh], "all are connected")
        await running[lost].die()
        running[lost] = Running(config, lost, journals[lost])
        await running[lost].live.start()
        await until(lambda: running[lost].live.connected == [0, fresh], "all are connected in its second life")
        for id in (lost, fresh):
            await running[id].die()
        running[fresh] = Running(config, fresh, journals[fresh])
        await running[fresh].live.start()
        known = running[fresh].live.machine.peer.state.statuses
        await until(lambda: known.get(lost) == 4, "it is told of that life")

        running[lost] = Running(config, lost)
        await running[lost].live.start()
        running[lost].live.command(APPLICATION, Subscribe("a"))
        await until(lambda: running[lost].live.topics == ["a"], "it holds the topic")
        assert running[lost].live.name == f"{lost}.3" and not running[lost].live.failed.done()
        assert [running[0].live.name, running[fresh].live.name] == ["0.1", f"{fresh}.2"], "it presumed nobody dead"
    finally:
        for each in running:
            await each.live.stop()


@pytest.mark.parametrize("is_over", [True, False])
async def test_a_peer_that_is_told_of_a_later_life_waits_until_that_would_be_dead(
    tmp_path: Path, is_over: bool
) -> None:
    config = load_peers(write_peers(tmp_path, 2, "heartbeat_ms = 100\nsuspect_after_ms = 500\n"))
    async with peers(config, 0) as (one,):
        for status in (4, 5) if is_over else (4,):
            assert not one.live.failed.done()
            one.live.take("peer1", Parcel(one.live.machine.peer.life, Frame(life_of(1, 1), 0, 0, News({0: status}))))
        if is_over:
            await until(lambda: one.told[-1] == Born(3), "it has begun its next life")
            assert not any("waits for the end" in line for line in one.live.explain())
            assert one.live.name == "0.3" and one.live._fencing is None and not one.live.failed.done()
        else:
            await until(lambda: "peer 0 waits for the end of its life 0.2" in one.live.explain(), "it waits")
            error = await asyncio.wait_for(asyncio.shield(one.live.failed), WAIT_S)
            assert isinstance(error, Fenced) and "another process is peer 0 now, in its life 0.2" in str(error)


def event(size: int) -> Event:
    return Event("e", "a", "0.1", b"x" * size)


async def test_what_ends_a_connection_and_nobody_else(tmp_path: Path) -> None:
    config = load_peers(write_peers(tmp_path, 3, "payload_bytes_max = 1000\n"))
    async with peers(config, 1, 2) as (one, two):
        for each in (one, two):
            each.live.command(APPLICATION, Subscribe("a"))
        life = two.live.life
        ours = life_of(0, 1)
        pub = Pub("a", ours, 1, {}, 0, event(1))
        wrong: list[tuple[Envelope[Any], str]] = [
            (Envelope("peer1", "peer2", Parcel(life, Frame(life_of(1, 1), 1, 0, Alive()))), "speaks for 'peer1'"),
            (
                Envelope("peer0", "peer2", Parcel(life, Frame(life_of(1, 1), 1, 0, Alive()))),
                "in the name of peer 1",
            ),
            (
                Envelope(
                    "peer0", "peer2", Parcel(life, Frame(ours, 1, 0, Cast(1, 0, replace(pub, event=event(2000)))))
                ),
                "an event of 2000 bytes; at most 1000 are allowed",
            ),
            (
                Envelope("peer0", "peer2", Parcel(life, Frame(ours, 1, 0, Cast(1, 1 << 40, pub)))),
                "a tree of height",
            ),
        ]
        for number, (envelope, reason) in enumerate(wrong):
            stranger = await Stranger.to(two.live.address)
            stranger.say(hello_of(config, 0))
            assert isinstance(await stranger.hear(), Welcome)
            stranger.say(envelope)
            refusal = await stranger.hear_all()
            assert refusal is not None and reason in refusal.reason
            stranger.close()
            assert two.live.refusals == {"peer": number + 1}
        garbage = await Stranger.to(two.live.address)
        garbage.writer.write(b"GET / HTTP/1.1\r\n\r\n")
        await garbage.hear_all()
        garbage.close()
        await until(lambda: one.live.topics == two.live.topics == ["a"], "joined")
        one.live.command(APPLICATION, Publish(Event("fine", "a", "1.1")))
        await until(lambda: two.seen() == ["fine"] == one.seen(), "the others go on")


async def test_token_and_tls(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    (tmp_path / "token").write_text(TOKEN)
    (tmp_path / "token").chmod(0o600)
    security = (
        '[security]\ntoken_file = "token"\n'
        f'certificate = "{certificates.server}"\nkey = "{certificates.server_key}"\n'
        f'authority = "{certificates.authority}"\n'
    )

    config = load_peers(write_peers(tmp_path, 2, more=security))
    async with peers(config, 0, 1) as (one, two):
        await until(lambda: one.live.connected == [1] and two.live.connected == [0], "connected")
        report = await observe(two.live.address, config.load_security(), WAIT_S)
        assert report.id == 1 and report.life == "1.1"
        bare = replace(config.load_security(), token="")
        with pytest.raises(ConnectionError, match="a token is needed"):
            await observe(two.live.address, bare, WAIT_S)
        with pytest.raises(ConnectionError, match=r"without an answer|reset|TLS"):
            await observe(two.live.address, SecurityOptions(token=TOKEN), WAIT_S)


async def test_a_report_says_how_a_peer_is(tmp_path: Path) -> None:
    config = load_peers(write_peers(tmp_path, 3))
    async with peers(config, 0, 1) as (one, two):
        one.live.command(APPLICATION, Subscribe("a"))
        await until(lambda: one.live.topics == ["a"], "joined, although peer 2 never came")
        report = await observe(one.live.address, SecurityOptions(), WAIT_S)
        assert (report.id, report.topics, report.connected) == (0, ["a"], [1])
        assert report.statuses["2"] % 2, "it was declared dead"
        assert any("peer2 is not connected" in line and "connection refused" in line for line in report.waits)
        assert report.system == config.description
        assert two.live.machine.peer.living() == (0,)
    with pytest.raises(InputError, match="is not an address"):
        await observe("nowhere", SecurityOptions(), 1.0)
