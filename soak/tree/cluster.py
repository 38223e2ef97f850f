"""A real cluster of processes in one folder: NATS, sequencer nodes, publishers, subscribers, and proxies between them.

Every node is its own `seriatim serve --node` process with its own configuration file, so that a proxy can stand between
it and its parent, and between it and the broker. Subscribers reach the broker through a proxy too. Publishers do not:
what happens to them is being killed.

    logs/<process>.log      what each process said
    publishers/, subscribers/<name>.jsonl   what each client was told, emptied after each round
    journals/               of nodes and durable subscribers
    nats/                   the broker's data
"""

import asyncio
import contextlib
import os
import shutil
import signal
from collections.abc import Callable, Iterable
from pathlib import Path

from seriatim.audit.order_log import OrderLog
from seriatim.brokers.nats.server import NatsServer
from seriatim.model import Node, Placement, TimedOut
from soak.children import Child, free_port, wait_for
from soak.refusals import ask
from soak.tree.guest import last_visit
from soak.tree.order import behind, last_numbers, read_order
from soak.tree.roles import SETTLE, last_life
from soak.tree.rows import Acknowledged, Handed, Held, Rested, Tail, last_row, now
from soak.tree.shapes import Shape
from soak.tree.verify import Carried, Record, Verdict, missing, outline, read_record
from tests.proxy import FaultProxy

START_S = 120.0  # a dozen Python processes on a busy machine
LOAD_S = 120.0
DRAIN_S = 300.0
IDLE_S = 20.0
LOOK_S = 0.3
LOOKS_MIN = 3
CLUSTER_NAME = "soak"


class Cluster:
    """Use it as an async context manager: whatever happens inside, no process is left behind."""

    def __init__(self, folder: Path, shape: Shape, seed: int = 0) -> None:
        self.folder = folder
        self.shape = shape
        self.seed = seed
        self.homes = dict(shape.homes)  # as moves have left them
        self.nats = NatsServer(folder / "nats")
        self.nodes: dict[str, Child] = {}  # "root", and "root+1" for the process that stands by
        self.publishers: dict[str, Child] = {}
        self.subscribers: dict[str, Child] = {}
        self.proxies: dict[str, FaultProxy] = {}  # "east>root", "east>root+1", "east>nats", "billing>nats"
        self.addresses: dict[Node, list[str]] = {}
        self._admin: dict[str, str] = {}  # by name of the node's process
        self.leaving: set[str] = set()  # nodes whose processes may end by themselves
        self._came = 0  # nodes that came, or tried to

    async def __aenter__(self) -> "Cluster":
        try:
            await self.start()
        except BaseException:
            await self.stop()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    @property
    def children(self) -> list[Child]:
        """Every process but NATS."""
        return [*self.nodes.values(), *self.subscribers.values(), *self.publishers.values()]

    @property
    def processes(self) -> list[str]:
        """Names that faults strike: of nodes (whichever process runs them), subscribers and publishers."""
        return [*self.shape.parents, *self.subscribers, *self.publishers]

    async def start(self) -> None:
        """Everything but the load: when this returns, every subscriber has joined."""
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "journals").mkdir(exist_ok=True)
        await asyncio.to_thread(self.nats.launch)
        for node in self.shape.parents:
            self.addresses[node] = [self.unused_address() for _ in range(2 if node in self.shape.standbys else 1)]
        for node, addresses in self.addresses.items():
            for place in range(len(addresses)):
                await self._add_node(node, place)
        for name, topics in self.shape.subscribers.items():
            url = await self._through_proxy(f"{name}>nats", "127.0.0.1", self.nats.port)
            more = ["--batch", str(self.shape.batches.get(name, 1))]
            more += ["--wander-s", "1.0"] if name in self.shape.wanderers else []
            more += ["--visitor"] if name in self.shape.visitors else []
            more += ["--far-back"] if set(topics) <= set(self.shape.quiet) else []
            role = "guest" if name in self.shape.guests else "subscriber"
            self.subscribers[name] = self._role(role, name, f"nats://{url}", topics, *more)
        for name in self.shape.publishers:
            self.publishers[name] = self._publisher("publisher", name, self.shape.rate)
        for name, topics in self.shape.in_turns.items():
            rate = ["--rate", str(self.shape.turns_rate)]
            self.publishers[name] = self._role("in-turns", name, self.nats.url, topics, *rate)
        for name in self.shape.plain:
            self.publishers[name] = self._publisher("plain", name, self.shape.plain_rate)
        for child in [*self.nodes.values(), *self.subscribers.values()]:
            child.start()
        await self.wait("every subscriber to join", lambda: all(map(self.has_joined, self.shape.steady)), START_S)

    async def stop(self) -> None:
        """Kill everything that is left, by process id."""
        for child in self.children:
            child.kill()
        for proxy in self.proxies.values():
            await proxy.stop()
        await asyncio.to_thread(self.nats.terminate)

    # ── load ──────────────────────────────────────────────────────────────────────────────────────────────────────

    async def begin_load(self) -> None:
        """Let the publishers go on, or start them, and wait until every subscriber is handed something."""
        (self.folder / SETTLE).unlink(missing_ok=True)
        tails = {name: self._tail("subscribers", name) for name in self.shape.steady}
        missing = set(tails)
        for child in self.publishers.values():
            if not child.running:
                child.start()

        def all_flow() -> bool:
            for name in list(missing):
                if any(isinstance(row, Handed) for row in tails[name].new()):
                    missing.discard(name)
            return not missing

        await self.wait("every subscriber to be handed an event", all_flow, START_S)

    async def end_load(self) -> None:
        """Let the publishers pause (each waits for its last answers), and the wanderers stay where they are."""
        asked_at = now()
        (self.folder / SETTLE).touch()

        def is_resting(name: str) -> bool:
            row = last_row(self.folder / "publishers" / f"{name}.jsonl")
            return isinstance(row, Rested) and row.at >= asked_at

        await self.wait("the publishers to get their last answers", lambda: all(map(is_resting, self.publishers)), 30.0)

    async def drain(self, carried: Carried | None, idle_s: float = IDLE_S, timeout_s: float = DRAIN_S) -> float:
        """Wait until nobody is owed anything; the seconds it took. TimedOut says what is missing.

        A slow subscriber may take its time, as long as the sum of what is owed goes down every now and then.
        """
        began_at = now()
        await self._owed_nothing(lambda record: missing(record, carried), idle_s, timeout_s)
        record = await asyncio.to_thread(read_record, self.folder)
        outlined = await asyncio.to_thread(outline, record, carried)
        order = OrderLog(await self.order(record, outlined, carried))
        await self._owed_nothing(lambda record: behind(record, carried, order), idle_s, timeout_s)
        return now() - began_at

    async def order(self, record: Record, verdict: Verdict, carried: Carried | None) -> list[Placement]:
        """The order log, as soon as it has everything that anybody was told of. TimedOut: it lags."""
        return await read_order(self.nats.url, CLUSTER_NAME, last_numbers(record, verdict), carried)

    async def _owed_nothing(self, look: Callable[[Record], dict[str, int]], idle_s: float, timeout_s: float) -> None:
        began_at = moved_at = now()
        least: int | None = None
        looks = 0  # that saw no progress: on a busy machine one look may take longer than `idle_s`
        while owed := await asyncio.to_thread(self._look, look):
            looks += 1
            if least is None or sum(owed.values()) < least:
                least, moved_at, looks = sum(owed.values()), now(), 0
            if (now() - moved_at > idle_s and looks > LOOKS_MIN) or now() - began_at > timeout_s:
                waited_s = now() - began_at
                raise TimedOut(f"waited {waited_s:.0f} s for subscribers to be handed what they are owed; left: {owed}")
            if dead := self.dead():
                raise TimedOut(f"subscribers are owed {owed}, and processes ended by themselves\n{self.quoted(dead)}")
            await asyncio.sleep(LOOK_S)

    def _look(self, look: Callable[[Record], dict[str, int]]) -> dict[str, int]:
        """Read all that was written so far. In a thread: the network between the nodes lives in this event loop."""
        return look(read_record(self.folder))

    async def take_record(self, folder: Path) -> Record:
        """Move what the clients wrote to a folder of its own, and read it. The subscribers stand still meanwhile."""
        running = [child for child in self.subscribers.values() if child.running]
        for child in running:
            child.freeze()
        try:
            for table in ("publishers", "subscribers"):
                (folder / table).mkdir(parents=True, exist_ok=True)
                for path in sorted((self.folder / table).glob("*.jsonl")):
                    shutil.copyfile(path, folder / table / path.name)
                    os.truncate(path, 0)
        finally:
            for child in running:
                child.thaw()
        return await asyncio.to_thread(read_record, folder)

    # ── looking ───────────────────────────────────────────────────────────────────────────────────────────────────

    def has_joined(self, subscriber: str) -> bool:
        """Whether a subscriber's running life has told what it holds."""
        child = self.subscribers[subscriber]
        rows = self._tail("subscribers", subscriber).new()
        return any(isinstance(row, Held) and row.complete and row.at >= child.started_at for row in rows)

    def is_reading_the_past(self, guest: str) -> bool:
        """Whether a guest was handed something in its present visit, and is not live yet."""
        rows = Tail(self.folder / "subscribers" / f"{guest}.{last_visit(self.folder, guest)}.jsonl").new()
        is_live = any(isinstance(row, Held) and row.complete for row in rows)
        return not is_live and any(isinstance(row, Handed) for row in rows)

    def acknowledged(self) -> int:
        """How many events publishers were told are safe, in this round."""
        rows = (row for each in read_record(self.folder).publishers.values() for row in each)
        return sum(isinstance(row, Acknowledged) for row in rows)

    def dead(self) -> list[Child]:
        """Processes that ended by themselves, and should not have."""
        return [child for child in self.children if child.died and child.name not in self.leaving]

    async def wait(self, what: str, is_so: Callable[[], bool], timeout_s: float) -> float:
        """Wait for something, but not for processes that are dead. TimedOut quotes what they said."""

        def is_so_or_dead() -> bool:
            return is_so() or bool(self.dead())

        try:
            took_s = await wait_for(is_so_or_dead, timeout_s, what)
        except TimedOut as error:
            raise TimedOut(f"{error}\n{self.quoted(self.children)}") from None
        if dead := self.dead():
            raise TimedOut(f"while waiting for {what}, processes ended by themselves\n{self.quoted(dead)}")
        return took_s

    def quoted(self, children: Iterable[Child]) -> str:
        """The last lines of some processes."""
        return "\n".join(f"--- {child.name} (exit code {child.code}):\n{child.last_lines()}" for child in children)

    async def explain(self) -> str:
        """What each process waits for, if it still answers."""
        (self.folder / "explain").mkdir(exist_ok=True)
        paths = []
        for child in [*self.subscribers.values(), *self.publishers.values()]:
            path = self.folder / "explain" / f"{child.name}.txt"
            path.unlink(missing_ok=True)
            if child.running:
                child.signal(signal.SIGUSR1)
                paths.append(path)
        with contextlib.suppress(TimedOut):
            await wait_for(lambda: all(path.exists() for path in paths), 3.0, "explanations")
        said = {path.stem: path.read_text(encoding="utf-8") for path in paths if path.exists()}
        for name in self.nodes:
            said[name] = await asyncio.to_thread(ask, f"http://{self._admin[name]}/explain")
        return "\n".join(f"--- {name}: {text}" for name, text in said.items())

    def clock_file(self, node: str) -> Path:
        """Where a node's process looks up how wrong its wall clock is."""
        return self.folder / "clocks" / node

    def journal_folder(self, node: Node) -> Path:
        """A node's file journal."""
        return self.folder / "journals" / f"node-{node}"

    async def active(self, node: Node) -> Child:
        """The process that runs a node now, of those that could; any of them if nobody does."""
        places = [child for name, child in self.nodes.items() if name.partition("+")[0] == node]
        if len(places) > 1:
            for child in places:
                if self.plays("active", await asyncio.to_thread(ask, f"http://{self._admin[child.name]}/status")):
                    return child
        return next((child for child in places if child.running), places[0])

    def plays(self, role: str, status: str) -> bool:
        """Whether a process says that this is its role."""
        return f'"role":"{role}"' in status

    def unused_address(self) -> str:
        """An address at which nobody listens."""
        return f"127.0.0.1:{free_port()}"

    # ── making ────────────────────────────────────────────────────────────────────────────────────────────────────

    def links(self, name: str, node: Node) -> list[str]:
        """The proxies between a process and those that may run this node."""
        return [f"{name}>{node}{f'+{place}' if place else ''}" for place in range(len(self.addresses[node]))]

    async def _add_node(self, node: Node, place: int) -> None:
        name = node if place == 0 else f"{node}+{place}"
        broker = await self._through_proxy(f"{name}>nats", "127.0.0.1", self.nats.port)
        parent = self.shape.parents[node]
        if parent is not None:
            for link, address in zip(self.links(name, parent), self.addresses[parent], strict=True):
                host, _, port = address.partition(":")
                await self._through_proxy(link, host, int(port))
        config = self.folder / "config" / f"{name}.toml"
        config.parent.mkdir(exist_ok=True)
        self._admin[name] = self.unused_address()
        config.write_text(self.configuration(node, name, broker, self._admin[name]), encoding="utf-8")
        arguments = ["serve", "--config", str(config), "--node", node, "--json"]
        if place:
            arguments.append("--standby")
        self.nodes[name] = child = Child(name, "soak.launch", arguments, self._log(name))
        child.environment["SOAK_CLOCK_FILE"] = str(self.clock_file(name))

    async def start_newcomer(self, node: Node, parent: Node) -> None:
        """A process for a node that the cluster is about to be given: below `parent`, or above it if that is the root
        and `node` becomes the root. It waits until it is added."""
        self.addresses[node] = [self.unused_address()]
        await self._add_node(node, 0)
        self.nodes[node].start()

    def new_name(self, kind: str) -> Node:
        """For a node that comes: names are not used twice."""
        self._came += 1
        return f"{kind}{self._came}"

    def drop_node(self, node: Node) -> None:
        """It has left the cluster, or never came."""
        self.nodes.pop(node).kill()
        self.leaving.discard(node)
        del self.addresses[node]

    def configuration(
        self,
        node: Node,
        name: str,
        broker: str,
        admin: str,
        address: str | None = None,
        journals: Path | None = None,
        bind: str = "",
    ) -> str:
        """A cluster.toml as this process sees the world: its parent and the broker behind a proxy."""
        folder = journals if journals is not None else self.folder / "journals"
        lines = [
            f'cluster = "{CLUSTER_NAME}"',
            f'broker = "nats://{broker}?connect_timeout_s=30"',  # a killed server may take long on a busy machine
            f'admin.address = "{admin}"',
            "times.takeover_ms = 1000",
            "times.retry_ms = 200",
            "times.lease_ms = 2000",
            f'mode = "{self.shape.mode}"',
        ]
        parent = self.shape.parents[node]
        for each, addresses in self.addresses.items():
            shown = list(addresses)
            if each == parent:
                links = self.links(name, parent)  # none to a root that came later: the layout says where it is
                shown = [self.proxies[link].address for link in links if link in self.proxies] or shown
            elif each == node and address is not None:
                shown = [address]
            lines += [f"[nodes.{each}]", f"address = {shown!r}"]
            lines += [f'bind = "{bind}"'] if bind and each == node else []
            if self.shape.parents[each] is not None:
                lines.append(f'parent = "{self.shape.parents[each]}"')
            journal = "jetstream" if self.shape.journal == "jetstream" else f"file:{folder / f'node-{each}'}"
            lines.append(f'journal = "{journal}"')
        lines.append("[homes]")
        lines += [f'"{topic}" = "{home}"' for topic, home in self.shape.homes.items()]
        return "\n".join([*lines, ""])

    def _publisher(self, role: str, name: str, rate: float) -> Child:
        weights = ",".join(map(str, self.shape.weights))
        more = ["--rate", str(rate), "--weights", weights]
        return self._role(role, name, self.nats.url, self.shape.topics, *more)

    def _role(self, role: str, name: str, url: str, topics: Iterable[str], *more: str) -> Child:
        arguments = [
            role,
            "--cluster",
            CLUSTER_NAME,
            "--folder",
            str(self.folder),
            "--name",
            name,
            "--url",
            url,
            "--seed",
            str(self.seed),
        ]
        module = "soak.tree.guest" if role == "guest" else "soak.tree.roles"
        return Child(name, module, [*arguments, "--topics", ",".join(topics), *more], self._log(name))

    async def _through_proxy(self, link: str, host: str, port: int) -> str:
        self.proxies[link] = proxy = FaultProxy(host, port)
        await proxy.start()
        return proxy.address

    def _log(self, name: str) -> Path:
        return self.folder / "logs" / f"{name}.log"

    def _tail(self, table: str, name: str) -> Tail:
        life = f".{last_life(self.folder, name)}" if name in self.shape.visitors else ""
        return Tail(self.folder / table / f"{name}{life}.jsonl")
