"""Three sites on one machine: a NATS super-cluster with a server at each, lines between them, and the cluster's files.

The servers are real and joined by gateways, as NATS joins regions; a stream lives where it was made. Only the distance
is simulated: every connection from one site to another goes through a line (distance.py). The shop's streams are made
here with plain NATS, as they would be there before anybody thinks of Seriatim.
"""

import asyncio
import json
import random
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import nats
import nats.errors
from nats.aio.client import Client
from nats.js.api import StreamConfig

from seriatim.brokers.capabilities import BrokerServer
from seriatim.brokers.urls import kind_of
from seriatim.demo.distance import HOST, Line
from seriatim.demo.shop import DISTANCE_MS, HOMES, NODE_SITES, PARENTS, SITES
from seriatim.model import ConnectionFailed, TimedOut
from seriatim.runtime.opened import Opened

ELECTION_S = 30.0  # usually five to nine seconds: that long a server waits before it asks for votes
ANSWER_S = 0.5
STREAM_S = 10.0
ATTEMPTS = 3  # a port that was free may be taken a moment later


class Sites(Opened):
    """The servers of three sites. They start before everything else and end last; `folder` has all that they write."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ports = _free_ports()
        self._servers: dict[str, BrokerServer] = {}
        self._lines: list[Line] = []

    def url(self, site: str) -> str:
        return self._servers[site].url

    def pid(self, site: str) -> int:
        return self._servers[site].pid

    def config(self, node: str) -> Path:
        """The file of the cluster for the process that runs this node: everybody uses the NATS server of its site."""
        return self._folder / f"{node}.toml"

    async def close(self) -> None:
        """Kill all servers and lines: nobody needs their data any more."""
        for server in self._servers.values():
            server.kill()
        for line in self._lines:
            await line.close()

    # ── servers ───────────────────────────────────────────────────────────────────────────────────────────────────

    async def _open(self) -> None:
        for attempt in range(1, ATTEMPTS + 1):
            try:
                await self._launch(attempt)
                break
            except ConnectionFailed as error:
                if "address already in use" not in str(error) or attempt == ATTEMPTS:
                    raise
                await self.close()
        await self._write_configs()

    async def _launch(self, attempt: int) -> None:
        self._servers, self._lines = {}, []
        gateways = {site: next(self._ports) for site in SITES}
        for site in SITES:
            remotes = []
            for other in SITES:
                if other != site:
                    line = await self._line(gateways[other], DISTANCE_MS[frozenset({site, other})])
                    remotes.append(f'{{name: {other}, url: "nats://{line.address}"}}')
            routes = next(self._ports)
            config = "\n".join(
                [
                    f"server_name: {site}",
                    # JetStream asks for a route before it works with others; one that leads to itself will do.
                    f'cluster {{ name: {site}, listen: "{HOST}:{routes}", routes: ["nats://{HOST}:{routes}"] }}',
                    f'gateway {{ name: {site}, listen: "{HOST}:{gateways[site]}", gateways: [{", ".join(remotes)}] }}',
                ]
            )
            server = kind_of("nats://").server(self._folder / f"nats-{site}-{attempt}", config=config)
            assert server is not None, "NATS has a server"
            self._servers[site] = server
            server.launch()

    async def _line(self, port: int, delay_ms: float) -> Line:
        line = Line(port, delay_ms)
        await line.open()
        self._lines.append(line)
        return line

    async def wait_until_elected(self) -> None:
        """JetStream works when the servers have a leader, which they choose by themselves; then make the streams."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + ELECTION_S
        for site in SITES:
            connection = await nats.connect(self.url(site))
            try:
                while not await _answers(connection):
                    if loop.time() > deadline:
                        raise TimedOut(f"the NATS servers had no leader after {ELECTION_S:g} s; try again")
                for topic in (topic for topic, node in HOMES.items() if NODE_SITES[node] == site):
                    await _make_stream(connection, topic, site, deadline + STREAM_S)
            finally:
                await connection.close()

    # ── sequencers ────────────────────────────────────────────────────────────────────────────────────────────────

    async def _write_configs(self) -> None:
        nodes = ""
        for node, parent in PARENTS.items():
            port = next(self._ports)
            farthest_ms = max(ms for pair, ms in DISTANCE_MS.items() if NODE_SITES[node] in pair)
            line = await self._line(port, farthest_ms)
            nodes += f'[nodes.{node}]\naddress = "{line.address}"\nbind = "{HOST}:{port}"\n'
            nodes += f'parent = "{parent}"\n' if parent is not None else ""
        homes = "[homes]\n" + "".join(f'{topic} = "{node}"\n' for topic, node in HOMES.items())
        for node, site in NODE_SITES.items():
            text = f'broker = "{self.url(site)}"\n\n{nodes}\n{homes}'
            self.config(node).write_text(text, encoding="utf-8")


async def _answers(connection: Client) -> bool:
    with suppress(nats.errors.Error):
        answer = await connection.request("$JS.API.INFO", b"", timeout=ANSWER_S)
        if "error" not in json.loads(answer.data):
            return True
    await asyncio.sleep(0.05)
    return False


async def _make_stream(connection: Client, topic: str, site: str, deadline: float) -> None:
    """Make the stream of a topic at this site. Right after an election the leader may not know the other sites yet;
    then try again."""
    jetstream = connection.jetstream(timeout=ANSWER_S * 4)
    problem = ""
    while asyncio.get_running_loop().time() < deadline:
        try:
            info = await jetstream.add_stream(StreamConfig(name=topic.upper(), subjects=[topic]))
            if info.cluster is not None and info.cluster.name == site:
                return
            problem = f"it was made elsewhere: {info.cluster}"
            await jetstream.delete_stream(topic.upper())
        except nats.errors.Error as error:
            problem = str(error)
        await asyncio.sleep(0.1)
    raise TimedOut(f"waited {STREAM_S:g} s for the stream of {topic} at {site} ({problem})")


def _free_ports() -> Iterator[int]:
    """Ports nobody listens on, below those that the system gives to outgoing connections."""
    given: set[int] = set()
    while True:
        port = random.randrange(15_000, 32_000)
        if port in given:
            continue
        with socket.socket() as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                trial.bind((HOST, port))
            except OSError:
                continue
        given.add(port)
        yield port
