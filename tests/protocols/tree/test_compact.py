"""A durable subscriber's journal written anew: short, and it resumes as the long one does."""

from random import Random

import msgspec
import pytest

from seriatim.model import Gap, Notification, Number, Topic
from seriatim.order import SequencingTree
from seriatim.protocols.tree import Subscriber
from seriatim.protocols.tree.messages import Began, Done, Joined, Updated
from seriatim.protocols.with_broker import Delivered
from tests.protocols.tree.net import Net, options_for, single

MODES = ["ticket", "log"]
TOPICS = "ABCD"


def known(subscriber: Subscriber) -> object:
    """What must survive a restart. A start that is passed, and the floor of its first event, need not."""
    state = subscriber.state
    topics = {}
    for topic, lane in state.lanes.items():
        holding = state.holdings[topic]
        floor = holding.floor if lane.done == holding.start else {}
        topics[topic] = (lane.open, lane.done, holding.acquaintance, floor, holding.stamped_to)
    return state.version, topics, state.left, state.unheard, state.changing, state.ready


def resumed(net: Net, journal: list[Began | Joined | Done]) -> Subscriber:
    return Subscriber.resume(net.tree, "s", net.options, journal)


def compacted(subscriber: Subscriber, done: dict[Topic, Number] | None = None) -> list[Began | Joined | Done]:
    journal = subscriber.compact(done)
    assert journal is not None
    decoder = msgspec.msgpack.Decoder(list[Began | Joined | Done])
    assert decoder.decode(msgspec.msgpack.encode(journal)) == journal
    return journal


class Life:
    """A random history of s, beside r, which holds everything. The same seed is the same life, up to its journals."""

    def __init__(self, seed: int, mode: str, compacts: bool) -> None:
        self.random = Random(f"{seed} {mode}")
        self.compacts = compacts
        tree = SequencingTree.star(dict(zip(TOPICS, (1, 2, 1, 0), strict=True)), leaves=2)
        self.net = Net(tree, options_for(mode, durable=True))
        self.events = 0
        self.net.change("r", TOPICS)
        self.net.change("s", "A")

    def live(self) -> "Life":
        random, net = self.random, self.net
        for _ in range(random.randint(10, 40)):
            what = random.choice(["publish", "publish", "publish", "change", "slow", "release", "restart"])
            if what == "publish":
                self.events += 1
                net.publish(random.choice("pq"), random.choice(TOPICS), f"e{self.events}")
            elif what == "change":
                held = net.subscriber("s").topics
                add = "".join(topic for topic in TOPICS if topic not in held and random.random() < 0.4)
                remove = "".join(topic for topic in TOPICS if topic in held and random.random() < 0.4)
                if add or remove:
                    net.change("s", add, remove)
            elif what == "slow":
                topic = random.choice(TOPICS)
                net.holds_back = lambda source, target, message, topic=topic: (  # type: ignore[misc]
                    target == "s" and isinstance(message, Delivered) and message.topic == topic
                )
            elif what == "release":
                net.release()
            else:
                self.restart()
        net.release()
        net.wait(1_000.0)
        return self

    def restart(self) -> None:
        net = self.net
        subscriber, journal = net.subscriber("s"), net.journals["s"]
        if self.compacts and subscriber.state.changing is None:
            journal = compacted(subscriber)
            assert len(journal) <= 2 + len(subscriber.topics)
            assert known(resumed(net, journal)) == known(resumed(net, net.journals["s"])) or self.last_left(journal)
            net.journals["s"] = list(journal)
        net.lose()
        net.crash("s")
        net.add("s", resumed(net, journal))
        net.run()

    def last_left(self, journal: list[Began | Joined | Done]) -> bool:
        """The long journal does not know that its last change, which only left topics, is complete."""
        long, short = (resumed(self.net, each) for each in (self.net.journals["s"], journal))
        assert long.state.changing is not None and not long.state.changing.add
        long.state.changing = short.state.changing = None
        return known(long) == known(short)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("seed", range(60))
def test_a_life_with_short_journals_is_the_same_life(mode: str, seed: int) -> None:
    long, short = Life(seed, mode, compacts=False).live(), Life(seed, mode, compacts=True).live()

    def told(life: Life) -> list[str]:
        return [str(each) for each in life.net.told["s"] if isinstance(each, Notification | Gap)]

    assert told(short) == told(long), f"seed {seed}, {mode} mode"
    assert len(set(short.net.notified("s"))) == len(short.net.notified("s"))
    order = {id: index for index, id in enumerate(short.net.notified("r"))}
    assert short.net.notified("s") == sorted(short.net.notified("s"), key=order.__getitem__)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("seed", range(40))
def test_from_an_earlier_moment_everything_after_it_comes_again(mode: str, seed: int) -> None:
    random = Random(f"acknowledged {seed} {mode}")
    net = single(mode, durable=True)
    net.change("r", "ABCD")
    net.change("s", "ABC")
    for number in range(random.randint(0, 4)):
        net.publish("p", random.choice("ABC"), f"early{number}")
    net.change("s", remove="C")
    net.change("s", "CD")
    for number in range(random.randint(1, 8)):
        net.publish("p", random.choice("ABCD"), f"late{number}")
    seen = net.all_told("s", Notification)
    acknowledged = random.randint(0, len(seen))
    done = {each.event.topic: each.number for each in seen[:acknowledged]}
    journal = compacted(net.subscriber("s"), done)
    net.crash("s")
    net.told["s"].clear()
    net.add("s", resumed(net, journal))
    net.run()
    net.publish("p", "A", "last")
    # C began anew: what came of it before that lies before its start, acknowledged or not.
    began = {topic: net.subscriber("s").state.holdings[topic].start for topic in "ABCD"}
    again = [each.event.id for each in seen[acknowledged:] if each.number > began[each.event.topic]]
    assert net.notified("s") == [*again, "last"], f"seed {seed}, {mode} mode"


@pytest.mark.parametrize("mode", MODES)
def test_a_floor_that_is_still_needed_is_kept(mode: str) -> None:
    net = single(mode, durable=True)
    net.change("s", "A")
    net.holds_back = lambda source, to, message: to == "s" and isinstance(message, Delivered)
    net.publish("p", "A", "a1")
    net.change("s", "B")
    assert compacted(net.subscriber("s")) == [
        Began(2, frozenset("AB"), frozenset()),
        Joined(2, "A", 0, {}, acquaintance=1),
        Joined(2, "B", 0, {"A": 1}, acquaintance=1),
    ]
    net.release()
    net.publish("p", "B", "b1")
    assert compacted(net.subscriber("s"))[1:] == [
        Joined(2, "A", 1, {}, acquaintance=1),
        Joined(2, "B", 1, {}, acquaintance=1),
    ]
    assert compacted(net.subscriber("s"), {"A": 1})[1:] == [
        Joined(2, "A", 1, {}, acquaintance=1),
        Joined(2, "B", 0, {"A": 1}, acquaintance=1),
    ]
    assert compacted(net.subscriber("s"), {"A": 10**9, "Z": 7})[1] == Joined(2, "A", 1, {}, acquaintance=1)


def test_a_subscriber_that_never_held_anything_has_an_empty_journal() -> None:
    assert single(durable=True).subscriber("s").compact() == []


@pytest.mark.parametrize("mode", MODES)
def test_what_was_left_is_remembered_also_if_nothing_is_held(mode: str) -> None:
    net = single(mode, durable=True)
    net.change("s", "AB")
    net.change("s", remove="AB")
    journal = compacted(net.subscriber("s"))
    assert journal == [Began(1, frozenset("AB"), frozenset()), Began(2, frozenset(), frozenset("AB"))]
    again = resumed(net, journal)
    assert (again.topics, again.state.left, again.state.version) == (frozenset(), {"A", "B"}, 2)


@pytest.mark.parametrize("mode", MODES)
def test_no_journal_is_written_in_the_middle_of_a_change(mode: str) -> None:
    net = single(mode, durable=True)
    net.hold_back(Joined, Updated)
    net.change("s", "AB")
    assert net.subscriber("s").compact() is None
    net.release()
    assert net.subscriber("s").compact() is not None
    net.hold_back(Updated)
    net.change("s", remove="B")
    assert net.subscriber("s").compact() is None
