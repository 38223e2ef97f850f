"""The fast model of trees gives the simulator's own times and counts: every one of them, to the last bit."""

from random import Random

import pytest

from seriatim.lab.experiments.paper001 import tree_model
from seriatim.lab.experiments.paper001.tree_model import Model, Outcome, Planned, on_tick, run
from seriatim.lab.experiments.paper001.tree_worlds import TreeWorld, VCubeWorld, settled_nodes, settled_peers
from seriatim.lab.papers.srpt import Overlay, SrptNode
from seriatim.lab.sim import Constant, Link, PacketDelays, Simulator
from seriatim.model import InputError
from seriatim.protocols.vcube import Peer, VCubeOptions
from seriatim.protocols.vcube.messages import Subscribe
from tests.cases import some_of
from tests.lab.experiments.srpt_worlds import SrptWorld

SIZES = [2, 8, 16, 64, 128]


def play(world: TreeWorld, planned: list[Planned]) -> TreeWorld:
    for row, publication in enumerate(planned):
        world.publish(publication.source, f"e{row}", f"T{publication.topic}", publication.at)
    world.run()
    return world


def draw(random: Random, size: int, members: list[int], count: int, topics: int, span: float) -> list[Planned]:
    drawn = [(random.uniform(0.0, span), random.choice(members), random.randrange(topics)) for _ in range(count)]
    return [Planned(on_tick(at), source, topic) for at, source, topic in drawn]


def assert_same(outcome: Outcome, world: TreeWorld, planned: list[Planned], name: str) -> None:
    for row in range(len(planned)):
        seen = world.seen[f"e{row}"]
        times = outcome.received[row * outcome.size : (row + 1) * outcome.size]
        modelled = {node: time for node, time in enumerate(times) if time >= 0.0}
        assert modelled | {seen.source: None} == dict(seen.received) | {seen.source: None}, f"{name}: e{row}"
        assert outcome.completed[row] == world.completed.get(f"e{row}", -1.0), f"{name}: e{row}"
    assert outcome.arrivals == world.simulator.counts.sent, name
    queues = [world.simulator.queues[world.address(node)] for node in range(outcome.size)]
    assert outcome.queued == [queue.messages for queue in queues], name
    assert outcome.places == [queue.places for queue in queues], name
    assert outcome.waited == pytest.approx([queue.waited_ms for queue in queues]), name
    assert outcome.waited_max == pytest.approx([queue.waited_ms_max for queue in queues]), name
    assert outcome.ended == world.simulator.now, name


@pytest.mark.parametrize("acks_wait", [False, True])
@pytest.mark.parametrize("size", SIZES)
def test_all_peers_publish(size: int, acks_wait: bool) -> None:
    random = Random(size)
    planned = [Planned(on_tick(random.uniform(0.0, 40.0)), source) for source in range(size)]
    outcome = run(Model(size=size, members=range(size), acks_wait=acks_wait), planned)
    world = play(VCubeWorld(size, ["T0"], acks_wait=acks_wait), planned)
    assert_same(outcome, world, planned, f"size {size}")
    assert sum(outcome.sent) == size * (size - 1)
    assert outcome.arrivals == 2 * size * (size - 1)


@pytest.mark.parametrize("seed", range(12))
def test_some_members_many_topics_and_one_publication_after_the_other(seed: int) -> None:
    random = Random(f"tree model {seed}")
    size = random.choice(SIZES[1:])
    members = sorted(random.sample(range(size), random.randint(2, size)))
    topics = random.randint(1, 5)
    planned = draw(random, size, members, random.randint(1, 40), topics, random.choice([10.0, 500.0, 5_000.0]))
    delays = PacketDelays(propagation=random.choice([10.0, 100.0, 1_000.0]), transmission=random.choice([1.0, 3.0]))
    acks_wait = random.random() < 0.5
    waits = random.random() < 0.7
    model = Model(size=size, members=members, delays=delays, acks_wait=acks_wait, stop_and_wait=waits)
    outcome = run(model, planned)
    options = VCubeOptions(window=1 if waits else len(planned), pruning="direct")
    names = [f"T{topic}" for topic in range(topics)]
    world = play(VCubeWorld(size, names, members, delays, acks_wait, options), planned)
    assert_same(outcome, world, planned, f"seed {seed}")


@pytest.mark.parametrize("seed", range(12))
def test_one_root_for_each_topic(seed: int) -> None:
    random = Random(f"tree model, roots {seed}")
    size = random.choice(SIZES[1:])
    members = sorted(random.sample(range(size), random.randint(2, size)))
    roots = [random.randrange(size) for _ in range(random.randint(1, 5))]
    planned = draw(random, size, members, random.randint(1, 40), len(roots), random.choice([10.0, 500.0]))
    outcome = run(Model(size=size, members=members, roots=roots), planned)
    world = play(SrptWorld(size, {f"T{topic}": root for topic, root in enumerate(roots)}, members), planned)
    assert_same(outcome, world, planned, f"seed {seed}")


def test_equal_times_are_taken_in_the_simulators_order() -> None:
    planned = [Planned(float(source % 3), source) for source in range(64)]
    outcome = run(Model(size=64, members=range(64)), planned)
    assert_same(outcome, play(VCubeWorld(64, ["T0"]), planned), planned, "equal times")


@pytest.mark.parametrize("seed", some_of(range(60), 20))
def test_any_tree_with_many_equal_times(seed: int) -> None:
    random = Random(f"waves {seed}")
    size = random.choice([2, 4, 8, 32, 64])
    members = sorted(random.sample(range(size), random.randint(2, size)))
    topics = random.randint(1, 5)
    delays = PacketDelays(propagation=random.choice([10.0, 100.0]), transmission=random.choice([1.0, 3.0]))
    acks_wait, waits = random.random() < 0.5, random.random() < 0.6
    roots = [random.randrange(size) for _ in range(topics)] if random.random() < 0.4 else None
    span = random.choice([0.0, 3.0, 500.0, 5_000.0])
    planned = [
        each if random.random() < 0.5 else Planned(float(round(each.at)), each.source, each.topic)
        for each in draw(random, size, members, random.randint(1, 80), topics, span)
    ]
    world: TreeWorld
    if roots is None:
        options = VCubeOptions(window=1 if waits else len(planned), pruning="direct")
        world = VCubeWorld(size, [f"T{topic}" for topic in range(topics)], members, delays, acks_wait, options)
    else:
        world = SrptWorld(size, {f"T{topic}": root for topic, root in enumerate(roots)}, members, delays)
    model = Model(size=size, members=members, delays=delays, acks_wait=acks_wait, stop_and_wait=waits, roots=roots)
    assert_same(run(model, planned), play(world, planned), planned, f"seed {seed}")


def test_settled_peers_are_as_if_they_had_joined() -> None:
    ids, members = range(8), [0, 2, 3, 7]
    options = VCubeOptions()
    simulator = Simulator(1, Link(Constant(1.0)))
    for id, peer in settled_peers(ids, {}, options).items():
        simulator.add(f"peer{id}", lambda records, epoch, peer=peer: peer)  # type: ignore[misc]
    for id in members:
        simulator.command(f"peer{id}", Subscribe("T"))
        simulator.run(steps_max=10_000)
    settled = settled_peers(ids, {"T": members}, options)
    for id in members:
        joined = simulator.machine(f"peer{id}")
        assert isinstance(joined, Peer)
        assert joined.members("T") == ([other for other in members if other != id], [])
        group, expected = joined.state.groups["T"], settled[id].state.groups["T"]
        assert group.part == expected.part == "in"
        assert group.entry is not None and expected.entry is not None
        assert group.entry.stage == expected.entry.stage == "ready"
        assert {entry.life: entry.stage for entry in group.view.values()} == {
            entry.life: entry.stage for entry in expected.view.values()
        }
        assert (group.barrier, group.unacknowledged) == (expected.barrier, expected.unacknowledged)


def test_settled_nodes_are_as_if_they_had_joined() -> None:
    overlay, members = Overlay(range(16), {"T": 5}), [0, 3, 9, 14]
    simulator = Simulator(1, Link(Constant(1.0)))
    for id in overlay.ids:
        simulator.add(overlay.address(id), lambda records, epoch, id=id: SrptNode(overlay, id))  # type: ignore[misc]
    for id in members:
        simulator.command(overlay.address(id), Subscribe("T"))
        simulator.run(steps_max=10_000)
    for id, settled in settled_nodes(overlay, {"T": members}).items():
        joined = simulator.machine(overlay.address(id))
        assert isinstance(joined, SrptNode)
        branch, expected = joined.branch("T"), settled.branch("T")
        assert list(branch.children) == list(expected.children)
        assert (branch.attached, branch.subscribed) == (expected.attached, expected.subscribed)


def test_what_the_model_cannot_do_is_refused() -> None:
    with pytest.raises(InputError, match="12 is not a power of two"):
        Model(size=12, members=range(12))
    with pytest.raises(InputError, match="too many"):
        Model(size=1 << 16, members=range(2))
    with pytest.raises(InputError, match="1 have nobody to publish to"):
        Model(size=8, members=[3])
    with pytest.raises(InputError, match="a transmission takes 0"):
        Model(size=8, members=range(8), delays=PacketDelays(transmission=0.0))
    with pytest.raises(InputError, match="not whole ticks"):
        run(Model(size=8, members=range(8)), [Planned(1 / 3, 0)])


def test_without_numpy_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree_model, "find_spec", lambda name: None)
    with pytest.raises(InputError, match="needs numpy, which is not installed"):
        run(Model(size=8, members=range(8)), [Planned(0.0, 0)])
