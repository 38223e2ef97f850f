"""Carries out a plan of faults on a cluster, each victim by its process id, and notes what it did and when.

A fault function does its harm, waits, undoes it, and returns when it struck and from when on recovery counts. Two
faults may overlap, but not on the same victim: then the later one is left out, and the plan's other faults are as
before.
"""

import asyncio
import contextlib
import os
import random
import shutil
import signal
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeAlias

from msgspec import structs

from seriatim.cli.cluster import find_cluster
from seriatim.cli.moving import Mover
from seriatim.client.tree.life import registered_durable
from seriatim.model import SeriatimError, TimedOut
from soak.children import Child, wait_for
from soak.journals import appends_to, copy_journal, nearly_full, replaced, tear
from soak.launch import FILE_BYTES_MAX
from soak.refusals import Refusal, ask, must_end
from soak.tree.cluster import CLUSTER_NAME, Cluster
from soak.tree.plan import CHANGES, Fault
from soak.tree.reshapes import NotReshaped, Reshapes
from soak.tree.rows import Injected, now
from tests.proxy import FaultProxy

NEAR_S = 1.0  # faults that are closer than this are not alone
ENDS_S = 60.0
MOVE_S = 30.0  # then it is undone, or goes on by itself
PAST_S = 3.0
GROWS_S = 5.0  # in which a node that has something to do writes to its journal
TOLD_S = 5.0  # in which a durable subscription has told how far it is, also on a busy machine
THIRD_S = 4.0  # a node's third process may run it for so long, where its children and clients do not look
CLOCK_JUMPS_S = (-7200.0, -60.0, 60.0, 7200.0)


Times: TypeAlias = tuple[float, float]  # when it struck, and from when on recovery counts


class FaultFailed(SeriatimError):
    """A fault had another effect than it must have: a second claim that was not refused, for instance."""


def check(refusal: Refusal) -> None:
    """FaultFailed: a process that must not act did not end as it must."""
    if refusal.complaint:
        raise FaultFailed(refusal.complaint)


class NotMoved(SeriatimError):
    """A move was not made, because of other faults. That is no violation; it must only do no harm."""


class Harmless(SeriatimError):
    """A fault was left out, because it would have changed nothing."""


class Nemesis:
    """One round's harm. `on_done` is told of each fault as it ends."""

    def __init__(self, cluster: Cluster, seed: object = 0, on_done: Callable[[Injected], None] | None = None) -> None:
        self._cluster = cluster
        self._random = random.Random(f"{seed}/nemesis")
        self._reshapes = Reshapes(cluster, random.Random(f"{seed}/reshapes"))
        self._on_done = on_done
        self._victims: set[str] = set()
        self.injected: list[Injected] = []
        self.left_out: list[Fault] = []

    async def carry_out(self, plan: list[Fault], until_s: float = 0.0) -> list[Injected]:
        """All faults of the plan at their times, and on until `until_s`. What they did, with who was alone."""
        began = now()
        async with asyncio.TaskGroup() as group:
            for fault in sorted(plan, key=lambda fault: fault.at_s):
                await asyncio.sleep(max(0.0, began + fault.at_s - now()))
                group.create_task(self.inject(fault))
        await asyncio.sleep(max(0.0, began + until_s - now()))
        self.injected = _with_neighbours(self.injected)
        return self.injected

    async def inject(self, fault: Fault) -> Injected | None:
        """One fault from beginning to end. None: its victim was suffering already."""
        victims = self._struck_by(fault)
        if victims & self._victims:
            self.left_out.append(fault)
            return None
        self._victims |= victims
        try:
            child = await self._child(fault.target)
            began_at, ended_at = await _FAULTS[fault.kind](self, fault, child)
        except (Harmless, NotMoved, NotReshaped):
            self.left_out.append(fault)
            return None
        finally:
            self._victims -= victims
        injected = self._told(fault, began_at, ended_at)
        self.injected.append(injected)
        if self._on_done is not None:
            self._on_done(injected)
        return injected

    def _struck_by(self, fault: Fault) -> set[str]:
        """A node whose disk is full must not also be killed, but its network may break."""
        if fault.kind == "kill-everything":
            return {f"{name} process" for name in ["nats", *self._cluster.processes]}
        if fault.kind in CHANGES and fault.kind != "move":
            return {"tree"}
        if fault.kind == "move":
            return {f"topic {fault.target.partition('>')[0]}"}
        link = fault.kind.startswith(("partition", "cut", "delay"))
        return {f"{fault.target} {'network' if link else 'process'}"}

    def _told(self, fault: Fault, began_at: float, ended_at: float) -> Injected:
        shape, target = self._cluster.shape, fault.target
        topics, subscribers, publisher = list(shape.topics), list(shape.subscribers), None
        if target in shape.parents:
            topics = shape.topics_of(target, self._cluster.homes)
            subscribers = shape.holders_of(topics)
        elif fault.kind == "move":
            topics = [target.partition(">")[0]]
            subscribers = shape.holders_of(topics)
        elif target in shape.subscribers:
            topics, subscribers = list(shape.subscribers[target]), [target]
        elif target in self._cluster.publishers:
            publisher = target
        fresh = target not in shape.subscribers
        return Injected(fault.kind, target, began_at, ended_at, topics, subscribers, publisher, fresh)

    # ── processes ─────────────────────────────────────────────────────────────────────────────────────────────────

    async def kill(self, fault: Fault, child: Child) -> Times:
        """kill -9, and a new life after a while."""
        child.kill()
        killed_at = now()
        await asyncio.sleep(fault.for_s)
        child.start()
        return killed_at, self._back_at(fault, killed_at, child.started_at)

    async def kill_guest(self, fault: Fault, child: Child) -> Times:
        """kill -9 of who reads the past, in the middle of it if it comes to that soon."""
        with contextlib.suppress(TimedOut):
            await wait_for(lambda: self._cluster.is_reading_the_past(fault.target), PAST_S, "a guest in the past")
        return await self.kill(fault, child)

    async def kill_nats(self, fault: Fault, _: None) -> Times:
        """kill -9 of the broker; its folder stays."""
        self._cluster.nats.kill()
        killed_at = now()
        await asyncio.sleep(fault.for_s)
        restarted_at = now()
        await asyncio.to_thread(self._cluster.nats.launch)
        return killed_at, restarted_at

    async def kill_everything(self, fault: Fault, _: None) -> Times:
        """kill -9 of the whole system, as if the machine had stopped, and a start in any order."""
        cluster = self._cluster
        children = [child for child in cluster.children if child.running]
        for child in children:
            child.kill()
        cluster.nats.kill()
        killed_at = now()
        await asyncio.sleep(fault.for_s)
        restarted_at = now()
        children = [child for child in children if child in cluster.children]  # a node may have gone for good
        self._random.shuffle(children)
        early = self._random.randrange(len(children) + 1)
        for child in children[:early]:
            child.start()
        await asyncio.to_thread(cluster.nats.launch)
        for child in children[early:]:
            child.start()
        return killed_at, restarted_at

    async def slow_down(self, fault: Fault, child: Child) -> Times:
        """Most of the time the process stands still, as on a machine that has too much to do."""
        began_at = now()
        while now() < began_at + fault.for_s:
            child.freeze()
            try:
                await asyncio.sleep(self._random.uniform(0.05, 0.2))
            finally:
                child.thaw()
            await asyncio.sleep(self._random.uniform(0.005, 0.03))
        return began_at, now()

    async def freeze_nats(self, fault: Fault, _: None) -> Times:
        """SIGSTOP of the broker: all connections stay, and nothing is answered."""
        os.kill(self._cluster.nats.pid, signal.SIGSTOP)
        frozen_at = now()
        try:
            await asyncio.sleep(fault.for_s)
        finally:
            os.kill(self._cluster.nats.pid, signal.SIGCONT)
        return frozen_at, now()

    async def freeze(self, fault: Fault, child: Child) -> Times:
        """SIGSTOP: others see a process that is there and says nothing."""
        child.freeze()
        frozen_at = now()
        try:
            await asyncio.sleep(fault.for_s)
        finally:
            child.thaw()
        return frozen_at, self._back_at(fault, frozen_at, now())

    async def claim(self, fault: Fault, child: Child) -> Times:
        """A second process claims a node that runs. It must be refused and say why; the first one goes on."""
        return await self._claim(fault, None)

    async def claim_elsewhere(self, fault: Fault, child: Child) -> Times:
        """The same with journals in another folder: an older copy of the node's own."""
        if self._cluster.shape.journal != "file":
            return await self._third(fault, child)
        journals = self._cluster.folder / "elsewhere"
        copy_journal(self._cluster.journal_folder(fault.target), journals / f"node-{fault.target}")
        return await self._claim(fault, journals)

    async def _third(self, fault: Fault, child: Child) -> Times:
        """One more process of a node with a standby, elsewhere. It stands by too, and takes over if it is quicker."""
        node, cluster = fault.target, self._cluster
        admin, bind = cluster.unused_address(), cluster.unused_address()
        broker = cluster.proxies[f"{node}>nats"].address
        third = self._second(node, cluster.configuration(node, node, broker, admin, bind=bind))
        third.start()
        third.wanted = False
        try:
            while not cluster.plays("standby", await asyncio.to_thread(ask, f"http://{admin}/status")):
                if not third.running or now() > third.started_at + ENDS_S:
                    raise FaultFailed(f"a third process of {node} does not stand by:\n{third.last_lines()}")
                await asyncio.sleep(TOLD_S / 10)
            child.kill()
            killed_at = now()
            await asyncio.sleep(THIRD_S)
        finally:
            third.kill()
        child.start()
        return killed_at, now()

    def _second(self, node: str, configuration: str) -> Child:
        """Another process of a node, with a file of its own."""
        folder = self._cluster.folder
        config = folder / "config" / f"{node}-second.toml"
        config.write_text(configuration, encoding="utf-8")
        arguments = ["serve", "--config", str(config), "--node", node, "--json"]
        return Child(f"{node}-second", "soak.launch", arguments, folder / "logs" / f"{node}-second.log")

    async def _is_active(self, node: str) -> bool:
        try:
            async with find_cluster(self._cluster.nats.url, CLUSTER_NAME, ENDS_S) as found:
                return any(place.node == node and each is not None for place, each in await found.status())
        except SeriatimError:  # everything was killed just now
            return False

    async def _claim(self, fault: Fault, journals: Path | None) -> Times:
        node, began_at = fault.target, now()
        give_up_at = began_at + ENDS_S
        while not await self._is_active(node):  # it may just be coming back from an earlier fault
            if now() > give_up_at:
                raise FaultFailed(f"{node} is not active, so nobody can be refused")
            await asyncio.sleep(TOLD_S / 10)
        proxy = self._cluster.proxies[f"{node}>nats"].address
        own, admin = self._cluster.unused_address(), self._cluster.unused_address()
        second = self._second(node, self._cluster.configuration(node, node, proxy, admin, own, journals))
        taken = f"process {self._cluster.nodes[node].pid} "
        check(await must_end(second, fault.kind, node, (taken,), ENDS_S))
        return began_at, now()

    async def second_durable(self, fault: Fault, child: Child) -> Times:
        """A second process takes the name of a durable subscription, with a folder of its own. It must be refused."""
        began_at = now()
        await self._refused(fault, "second", None)
        return began_at, now()

    async def stale_durable(self, fault: Fault, child: Child) -> Times:
        """An old copy of a durable's journal, and no journal at all, must be refused while its process is away."""
        child.kill()
        killed_at = now()
        copy = self._new_folder("copy") / fault.target
        shutil.copytree(self._cluster.folder / "journals" / "subscribers" / fault.target, copy)
        before = await self._registered(fault.target)
        child.start()
        await asyncio.sleep(fault.for_s)
        give_up_at = now() + ENDS_S
        while await self._registered(fault.target) <= before:  # else the copy is as good as its own journal
            if now() > give_up_at:
                raise FaultFailed(f"{fault.target} has acknowledged nothing for {ENDS_S:g} s")
            await asyncio.sleep(TOLD_S / 10)
        child.kill()
        await self._refused(fault, "stale", copy)
        await self._refused(fault, "lost", None)
        child.start()
        return killed_at, child.started_at

    async def _registered(self, name: str) -> int:
        """How many events a durable subscription has told that it has acknowledged. Waits until somebody can say so."""
        give_up_at = now() + ENDS_S
        while True:
            try:
                return await self._registered_now(name)
            except SeriatimError:  # everything was killed just now
                if now() > give_up_at:
                    raise
            await asyncio.sleep(TOLD_S / 10)

    async def _registered_now(self, name: str) -> int:
        async with find_cluster(self._cluster.nats.url, CLUSTER_NAME, ENDS_S) as found:
            assert found.broker.lives is not None, "JetStream keeps them"
            record = await registered_durable(found.broker.lives, name)
        return sum(record.acknowledged.values()) if record is not None else 0

    async def _refused(self, fault: Fault, what: str, copy: Path | None) -> None:
        """Another process with this durable name, and this copy as its journal. FaultFailed: it was let in."""
        cluster, name = self._cluster, fault.target
        journals = self._new_folder(what)
        if copy is not None:
            shutil.copytree(copy, journals / CLUSTER_NAME / name)
        held = cluster.shape.subscribers[name]
        durable = ["--durable", name, "--journals", str(journals), "--idle", str(ENDS_S)]
        arguments = ["sub", *held, *durable, "--url", cluster.nats.url, "--cluster", CLUSTER_NAME, "--json"]
        other = Child(f"{name}-{what}", "soak.launch", arguments, cluster.folder / "logs" / f"{name}-{what}.log")
        refusal = await must_end(other, fault.kind, name, (f"durable subscription '{name}'",), 2 * ENDS_S)
        check(refusal)
        if '"topic"' in refusal.said:
            raise FaultFailed(f"a {what} process was durable {name}, saying:\n{refusal.said}")

    def _new_folder(self, what: str) -> Path:
        """One that no earlier fault has used: the rounds of a soak share the cluster's folder."""
        return Path(tempfile.mkdtemp(prefix=f"{what}-", dir=self._cluster.folder / "journals"))

    async def age_journal(self, fault: Fault, child: Child) -> Times:
        """kill -9, and somebody restores an older copy of the journal. The node must end and say so; the newest heals
        it, as it says."""
        journal = self._cluster.journal_folder(fault.target)
        copy = journal.with_name(f"{journal.name}-copy")
        copy_journal(journal, copy)
        appends = appends_to(copy)
        try:  # a node without topics may have nothing to write
            await wait_for(lambda: appends_to(journal) > appends, GROWS_S, f"{fault.target} to go on")
        except TimedOut:
            raise Harmless(f"the copy of {fault.target}'s journal is as good as the journal") from None
        await asyncio.sleep(fault.for_s)
        child.kill()
        killed_at = now()
        with replaced(journal, copy):
            check(await must_end(child, fault.kind, child.name, ("Put the newest journal back",), ENDS_S))
        child.start()
        return killed_at, child.started_at

    # ── moves ─────────────────────────────────────────────────────────────────────────────────────────────────────

    async def move(self, fault: Fault, _: None) -> Times:
        """The topic gets another home, whoever is dead or frozen meanwhile. `orders>west`: this one."""
        cluster, began_at = self._cluster, now()
        topic, to = (*fault.target.split(">"), "")[:2]
        try:
            async with find_cluster(cluster.nats.url, CLUSTER_NAME, MOVE_S) as found:
                mover = Mover(found)
                to = to or self._random.choice(sorted(set(cluster.shape.parents) - {mover.tree.home(topic)}))
                await mover.move(topic, to, MOVE_S)
        except SeriatimError as error:
            raise NotMoved(str(error)) from None
        cluster.homes[topic] = to
        return began_at, now()

    async def reshape(self, fault: Fault, _: None) -> Times:
        """A node comes or goes, whoever is dead meanwhile. `east`: below this node, or this one; `tree`: any."""
        began_at, which = now(), "" if fault.target == "tree" else fault.target
        await self._reshapes.carry_out(fault.kind, which)
        return began_at, now()

    # ── journals, disks, clocks ───────────────────────────────────────────────────────────────────────────────────

    async def tear_journal(self, fault: Fault, child: Child) -> Times:
        """kill -9 in the middle of an append: part of a frame is at the journal's end. Nobody was told of it."""
        child.kill()
        killed_at = now()
        tear(self._cluster.journal_folder(fault.target), self._random)
        await asyncio.sleep(fault.for_s)
        child.start()
        return killed_at, child.started_at

    async def fill_disk(self, fault: Fault, child: Child) -> Times:
        """The disk is nearly full when the node starts, and soon full. It must end by itself and say why."""
        child.kill()
        killed_at = now()
        log, child.log = child.log, child.log.with_name(f"{child.name}-full-disk.log")
        child.log.unlink(missing_ok=True)  # this one may not grow beyond the limit either
        child.environment[FILE_BYTES_MAX] = str(nearly_full(self._cluster.journal_folder(fault.target)))
        try:
            check(await must_end(child, fault.kind, child.name, ("File too large",), ENDS_S))
        finally:
            del child.environment[FILE_BYTES_MAX]
            child.log = log
        await asyncio.sleep(fault.for_s)
        child.start()
        return killed_at, child.started_at

    async def jump_clock(self, fault: Fault, child: Child) -> Times:
        """The wall clock jumps, the node is killed, and comes back to a clock that has jumped again."""
        path = self._cluster.clock_file(child.name)
        path.parent.mkdir(exist_ok=True)
        path.write_text(str(self._random.choice(CLOCK_JUMPS_S)), encoding="ascii")
        await asyncio.sleep(fault.for_s)
        child.kill()
        killed_at = now()
        path.write_text(str(self._random.choice(CLOCK_JUMPS_S)), encoding="ascii")
        child.start()
        return killed_at, self._back_at(fault, killed_at, child.started_at)

    # ── network ───────────────────────────────────────────────────────────────────────────────────────────────────

    async def partition(self, fault: Fault, child: Child) -> Times:
        """Drop all messages without an error."""
        proxies = self._links(fault, child)
        for proxy in proxies:
            proxy.partition()
        began_at = now()
        try:
            await asyncio.sleep(fault.for_s)
        finally:
            for proxy in proxies:
                proxy.heal()
        return began_at, now()

    async def cut(self, fault: Fault, child: Child) -> Times:
        """The connection breaks, and may be made again at once."""
        for proxy in self._links(fault, child):
            proxy.cut()
        return now(), now()

    async def delay(self, fault: Fault, child: Child) -> Times:
        """Delay every message by a fifth of a second."""
        proxies = self._links(fault, child)
        for proxy in proxies:
            proxy.delay_s = 0.2
        began_at = now()
        try:
            await asyncio.sleep(fault.for_s)
        finally:
            for proxy in proxies:
                proxy.delay_s = 0.0
        return began_at, now()

    # ── whom ──────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _child(self, target: str) -> Any:
        """The process that is struck; None: NATS, which is not one of our children, or all."""
        cluster = self._cluster
        if target in cluster.shape.parents:
            return await cluster.active(target)
        return (cluster.subscribers | cluster.publishers).get(target)

    def _back_at(self, fault: Fault, struck_at: float, undone_at: float) -> float:
        """From when on recovery counts. A standby needs nobody to undo anything."""
        return struck_at if fault.target in self._cluster.shape.standbys else undone_at

    def _links(self, fault: Fault, child: Child) -> list[FaultProxy]:
        parent = self._cluster.shape.parents.get(fault.target) if fault.kind.endswith("-nodes") else None
        links = self._cluster.links(child.name, parent) if parent is not None else [f"{child.name}>nats"]
        return [self._cluster.proxies[link] for link in links]


_FAULTS: dict[str, Callable[[Nemesis, Fault, Any], Awaitable[Times]]] = {
    "kill-sequencer": Nemesis.kill,
    "kill-publisher": Nemesis.kill,
    "kill-subscriber": Nemesis.kill,
    "kill-guest": Nemesis.kill_guest,
    "kill-nats": Nemesis.kill_nats,
    "freeze-sequencer": Nemesis.freeze,
    "freeze-subscriber": Nemesis.freeze,
    "freeze-nats": Nemesis.freeze_nats,
    "slow-subscriber": Nemesis.slow_down,
    "kill-everything": Nemesis.kill_everything,
    "partition-nodes": Nemesis.partition,
    "cut-nodes": Nemesis.cut,
    "delay-nodes": Nemesis.delay,
    "partition-sequencer": Nemesis.partition,
    "partition-subscriber": Nemesis.partition,
    "claim-node": Nemesis.claim,
    "second-durable": Nemesis.second_durable,
    "stale-durable": Nemesis.stale_durable,
    "second-process": Nemesis.claim_elsewhere,
    "stale-journal": Nemesis.age_journal,
    "tear-journal": Nemesis.tear_journal,
    "fill-disk": Nemesis.fill_disk,
    "jump-clock": Nemesis.jump_clock,
    "move": Nemesis.move,
    "node-add": Nemesis.reshape,
    "node-remove": Nemesis.reshape,
    "node-root": Nemesis.reshape,
}


def _with_neighbours(injected: list[Injected]) -> list[Injected]:
    """Marks those that overlap, or nearly so: whose recovery cannot be told from another's."""
    return [
        structs.replace(
            one,
            alone=not any(
                other is not one
                and other.fault not in CHANGES
                and other.began_at < one.ended_at + NEAR_S
                and one.began_at < other.ended_at + NEAR_S
                for other in injected
            ),
        )
        for one in injected
    ]
