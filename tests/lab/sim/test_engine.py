"""The engine: order, timers, faults, crashes, journals, costs."""

from functools import partial

import pytest

from seriatim.lab.sim.delays import Constant, Delay, Matrix, Normal, Uniform
from seriatim.lab.sim.engine import MachineFailed, Simulator
from seriatim.lab.sim.network import Link, between, reliable_unordered, unreliable
from seriatim.lab.sim.process import Cost, Doom
from seriatim.model import InputError
from seriatim.protocols.machine import Effects
from tests.lab.sim.toys import GO, Counter, Number, Script, Total, Word, effects_of, pour, same

NUMBERS = [Number(value) for value in range(200)]


def numbers(machine: Script) -> list[Number]:
    return [message for message in machine.heard if isinstance(message, Number)]


def stream(link: Link, seed: int = 7) -> tuple[Simulator, Script]:
    """One machine sends 200 numbers to another, all at once."""
    simulator = Simulator(seed, link)
    receiver = Script()
    simulator.add("receiver", same(receiver))
    simulator.add("sender", same(Script(pour([("receiver", number) for number in NUMBERS]))))
    simulator.command("sender", GO)
    return simulator, receiver


@pytest.mark.parametrize("delay", [Constant(5.0), Normal(10.0, 2.0), Normal(0.1, 5.0), Uniform(1.0, 100.0)])
def test_a_fifo_link_keeps_the_order_under_every_delay(delay: Delay) -> None:
    simulator, receiver = stream(Link(delay))
    assert simulator.run()
    assert receiver.heard == NUMBERS
    assert receiver.times == sorted(receiver.times)


def test_an_unordered_link_delivers_everything_once_in_another_order() -> None:
    simulator, receiver = stream(reliable_unordered())
    simulator.run()
    assert receiver.heard != NUMBERS
    assert sorted(numbers(receiver)) == NUMBERS


def test_an_unreliable_link_loses_repeats_and_reorders() -> None:
    simulator, receiver = stream(unreliable(loss=0.2, duplication=0.2, reordering=0.2))
    simulator.run()
    assert numbers(receiver) != sorted(numbers(receiver))
    assert simulator.counts.sent == len(NUMBERS)
    assert 0 < simulator.counts.lost < 100
    assert 0 < simulator.counts.duplicated < 100
    assert len(receiver.heard) == len(NUMBERS) - simulator.counts.lost + simulator.counts.duplicated


def test_the_same_seed_gives_the_same_run_and_another_seed_another() -> None:
    runs = []
    for seed in (1, 1, 2):
        simulator, receiver = stream(unreliable(), seed)
        simulator.run()
        runs.append(receiver.seen)
    assert runs[0] == runs[1] != runs[2]


def test_a_matrix_gives_each_pair_of_sites_its_own_delay() -> None:
    delay = Matrix(
        {("east", "west"): Constant(80.0), ("a", "b"): Constant(3.0)},
        otherwise=Constant(1.0),
        sites={"c": "east", "d": "west"},
    )
    simulator = Simulator(1, Link(delay))
    machines = {name: Script() for name in "bd"}
    for name, machine in machines.items():
        simulator.add(name, same(machine))
    for name in "ac":
        simulator.add(name, same(Script(pour([("b", Word(name)), ("d", Word(name))]))))
        simulator.command(name, GO)
    simulator.run()
    assert machines["b"].seen == [("c", Word("c"), 1.0), ("a", Word("a"), 3.0)]
    assert machines["d"].seen == [("a", Word("a"), 1.0), ("c", Word("c"), 80.0)]


@pytest.mark.parametrize(("holds", "heard"), [(True, ["early", "within", "late"]), (False, ["early", "late"])])
def test_a_partition_holds_or_loses_what_is_sent_into_it(holds: bool, heard: list[str]) -> None:
    simulator = Simulator(1, Link(Constant(1.0), holds=holds))
    receiver = Script()
    simulator.add("receiver", same(receiver))
    simulator.add("sender", same(Script(lambda _, message, now: effects_of([("receiver", message)]))))
    simulator.partition(between(["sender"], ["receiver"]), 10.0, 20.0)
    simulator.partition(between(["receiver"], ["sender"]), 12.0, 18.0)
    for time_ms, word in ((5.0, "early"), (15.0, "within"), (25.0, "late")):
        simulator.at(time_ms, partial(simulator.command, "sender", Word(word)))
    simulator.run()
    assert receiver.heard == [Word(word) for word in heard]
    assert receiver.times == ([6.0, 21.0, 26.0] if holds else [6.0, 26.0])


def test_healing_ends_loss_and_partitions_and_restarts_the_dead() -> None:
    simulator = Simulator(1, unreliable(Constant(1.0), loss=1.0))
    receiver = Script()
    simulator.add("receiver", same(receiver))
    simulator.add("sender", same(Script(pour([("receiver", Word("hello"))]))))
    simulator.command("sender", GO)
    simulator.network.cut([("sender", "receiver")])
    simulator.crash("receiver")
    simulator.run()
    assert receiver.heard == []
    simulator.heal()
    simulator.command("sender", GO)
    simulator.run()
    assert receiver.heard == [Word("hello")]


def test_each_wish_replaces_the_one_before() -> None:
    wishes = iter([100.0, 50.0, 80.0, None, 70.0])
    machine = Script(lambda source, message, now: effects_of(wake_at=next(wishes)))
    simulator = Simulator(1)
    simulator.add("m", same(machine))
    for _ in range(5):
        simulator.command("m", GO)
    simulator.run()
    assert machine.woken == [0.0, 70.0], "a tick at the start, and the last wish"


def test_a_wish_that_is_taken_back_is_forgotten() -> None:
    wishes = iter([100.0, None])
    machine = Script(lambda source, message, now: effects_of(wake_at=next(wishes)))
    simulator = Simulator(1)
    simulator.add("m", same(machine))
    simulator.command("m", GO)
    simulator.command("m", GO)
    simulator.run()
    assert machine.woken == [0.0]


def test_a_machine_that_never_rests_is_found() -> None:
    simulator = Simulator(1)
    simulator.add("m", same(Script(wake=lambda now: effects_of(wake_at=now))))
    with pytest.raises(MachineFailed, match="m@1 asks to be woken at once, forever"):
        simulator.run(until_ms=1.0)


def test_a_run_can_be_bounded_in_steps() -> None:
    simulator, receiver = stream(Link(Constant(1.0)))
    assert not simulator.run(steps_max=50)
    assert receiver.heard == NUMBERS[:50]
    assert simulator.run()
    assert receiver.heard == NUMBERS


def counting(link: Link | None = None) -> tuple[Simulator, Script]:
    simulator = Simulator(1, link or Link(Constant(1.0)))
    reader = Script()
    simulator.add("reader", same(reader))
    simulator.add("counter", lambda records, epoch: Counter("reader", records, epoch))
    return simulator, reader


def test_a_restarted_machine_knows_what_it_journalled() -> None:
    simulator, reader = counting()
    simulator.command("counter", Number(5))
    simulator.crash("counter")
    assert not simulator.command("counter", Number(100)), "there is nobody to take it"
    simulator.start("counter")
    simulator.command("counter", Number(7))
    simulator.run()
    assert reader.heard == [Total(1, 5), Total(2, 12)]


@pytest.mark.parametrize(
    ("doom", "heard"),
    [
        (Doom(persists=False, sends=1), [Total(2, 2)]),
        (Doom(persists=True, sends=0), [Total(2, 7)]),
        (Doom(persists=True, sends=1), [Total(1, 5), Total(2, 7)]),
    ],
)
def test_a_crash_in_the_middle_of_a_step_never_sends_what_was_not_journalled(doom: Doom, heard: list[Total]) -> None:
    simulator, reader = counting()
    simulator.crash("counter", doom)
    assert simulator.is_running("counter")
    simulator.command("counter", Number(5))
    assert not simulator.is_running("counter")
    simulator.start("counter")
    simulator.command("counter", Number(2))
    simulator.run()
    assert reader.heard == heard


def test_a_process_that_only_seemed_dead_is_stopped_by_its_journal() -> None:
    simulator, reader = counting()
    simulator.add("source", same(Script(pour([("counter", Number(1))]))))
    simulator.command("source", Word("reaches the old process, which is replaced while this is under way"))
    old = simulator.processes["counter"]
    simulator.start("counter")
    simulator.command("counter", Number(10))
    simulator.run()
    assert not old.running
    assert simulator.counts.fenced == 1
    assert reader.heard == [Total(2, 10)], "nothing of the old process got out"


def test_what_is_under_way_to_a_dead_process_is_lost() -> None:
    simulator, receiver = stream(Link(Constant(5.0)))
    simulator.at(1.0, lambda: simulator.crash("receiver"))
    simulator.at(2.0, lambda: simulator.start("receiver"))
    simulator.run()
    assert receiver.heard == []
    assert simulator.counts.lost == len(NUMBERS)


def test_costs_follow_the_delay_model_of_paper_001() -> None:
    """§4: processing 1, transmission 1, propagation 100; a copy is queued for each destination."""
    cost = Cost(processing_ms=1.0, transmission_ms=1.0)
    simulator = Simulator(1, Link(Constant(100.0)))
    leaves = {name: Script() for name in "bcd"}
    for name, leaf in leaves.items():
        simulator.add(name, same(leaf), cost)
    simulator.add(
        "a", same(Script(pour([("b", Number(1)), ("c", Number(1)), ("d", Number(1)), ("d", Number(2))]))), cost
    )
    simulator.command("a", GO)
    simulator.run()
    assert [leaf.times for leaf in leaves.values()] == [[102.0], [103.0], [104.0, 105.0]]
    queue = simulator.queues["a"]
    assert (queue.messages, queue.waited_ms, queue.waited_ms_max) == (4, 6.0, 3.0)


def test_a_busy_machine_takes_messages_one_by_one() -> None:
    simulator = Simulator(1, Link(Constant(0.0)))
    busy = Script()
    simulator.add("busy", same(busy), Cost(processing_ms=10.0))
    simulator.add("a", same(Script(pour([("busy", Number(1)), ("busy", Number(2)), ("busy", Number(3))]))))
    simulator.command("a", GO)
    simulator.run(until_ms=25.0)
    assert busy.times == [10.0, 20.0]
    simulator.crash("busy")
    simulator.run()
    assert busy.heard == [Number(1), Number(2)], "what waited in its queue died with it"


def test_messages_are_recorded_on_request() -> None:
    simulator = Simulator(1, Link(Constant(2.0)), record_messages=True)
    simulator.add("b", same(Script()))
    simulator.add("a", same(Script(pour([("b", Word("four"))]))))
    simulator.command("a", GO)
    assert simulator.messages is not None
    (row,) = simulator.messages
    assert (row.source, row.target, row.kind, row.bytes, row.sent_at, row.received_at) == (
        "a",
        "b",
        "Word",
        11,
        0.0,
        2.0,
    )


def test_a_failing_machine_says_when_and_on_what() -> None:
    def fail(source: str, message: object, now: float) -> Effects:
        raise ValueError("no")

    simulator = Simulator(99, Link(Constant(1.0)))
    simulator.add("b", same(Script(fail)))
    simulator.add("a", same(Script(pour([("b", Word("poison"))]))))
    simulator.command("a", GO)
    with pytest.raises(MachineFailed, match=r"seed 99, 1.0 ms: b@1 was given Word.*'poison'.* by a: ValueError: no"):
        simulator.run()


def test_bad_input_names_the_field_and_the_fix() -> None:
    simulator = Simulator(1)
    simulator.add("m", same(Script(pour([("nobody", Number(1))]))))
    with pytest.raises(InputError, match=r"no machine at 'nobody'"):
        simulator.command("m", GO)
    with pytest.raises(InputError, match=r"'m' is taken"):
        simulator.add("m", same(Script()))
    with pytest.raises(InputError, match=r"end_ms"):
        simulator.partition([("m", "m")], 5.0, 1.0)
    with pytest.raises(InputError, match=r"time_ms"):
        simulator.at(-1.0, lambda: None)
    with pytest.raises(InputError, match=r"loss: 1.5 is not a probability"):
        Link(loss=1.5)
    with pytest.raises(InputError, match=r"processing_ms"):
        Cost(processing_ms=-1.0)
    for delay in (Constant(-1.0), Uniform(5.0, 1.0), Normal(1.0, float("nan"))):
        with pytest.raises(InputError):
            stream(Link(delay))
