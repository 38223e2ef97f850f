"""The machine of a subscriber on sequencing atoms, by itself: which groups it takes items of."""

from seriatim.model import APPLICATION, BROKER, Event
from seriatim.protocols.atoms import AtomsOptions
from seriatim.protocols.atoms.live_messages import Joined, encode_item, slot_of
from seriatim.protocols.atoms.messages import Finished, Gone, Item, Notice, Started
from seriatim.protocols.atoms.subscriber import Membership
from seriatim.protocols.machine import Effects
from seriatim.protocols.with_broker import Change, Delivered, Listening, Voids

MEMBERS = frozenset({"ann", "bob"})
STRANGERS = frozenset({"bob", "eve"})


class Ann:
    """A subscriber of topic t that is a member since its first group."""

    def __init__(self) -> None:
        self.machine = Membership("ann", "one", AtomsOptions())
        self.machine.step(APPLICATION, Change(frozenset("t"), frozenset()), 0.0)
        self.machine.step(BROKER, Listening("t", 1), 0.0)
        self.machine.step("one", Joined("t", "t.1"), 0.0)

    def hears(self, incarnation: int, number: int, notice: Notice) -> Effects:
        item = Item(f"t.{incarnation}", number, {}, None, notice)
        event = Event(f"{item.group}/{number}", "t", "one", encode_item(item))
        return self.machine.step(BROKER, Delivered("t", slot_of(item), {}, event), 0.0)

    def opens(self, incarnation: int, members: frozenset[str] = MEMBERS) -> Effects:
        return self.hears(incarnation, 1, Notice(opens=True, members=members))

    def told_gone(self, incarnation: int) -> None:
        self.machine.step("one", Gone(f"t.{incarnation}", frozenset()), 0.0)


def test_a_group_that_lingers_is_heard_though_a_later_one_is_gone() -> None:
    ann = Ann()
    assert ann.opens(1).send == [("one", Started("t.1"))]
    assert ann.opens(2).send == [("one", Started("t.2"))]
    ann.told_gone(2)
    closing = Notice(closes=True, mark="7", members=MEMBERS)
    assert ann.hears(1, 2, closing).send == [("one", Finished("t.1", "7"))]
    assert ann.opens(2).send == [], "a repeat of what is gone is nothing new"
    ann.told_gone(1)
    assert ann.hears(1, 2, closing).send == []
    assert ann.opens(3).send == [("one", Started("t.3"))]


def test_positions_without_an_item_say_nothing() -> None:
    ann = Ann()
    assert ann.machine.step(BROKER, Voids("t", 1, 10**9), 0.0) == Effects()
    assert ann.opens(1).send == [("one", Started("t.1"))]


def test_what_is_gone_is_not_remembered_for_ever() -> None:
    ann = Ann()
    for incarnation in range(1, 101):
        ann.opens(incarnation, STRANGERS if incarnation % 10 == 5 else MEMBERS)  # it had left for a while
        if incarnation % 10 != 5 and incarnation != 1:
            ann.told_gone(incarnation)
    holding = ann.machine.holdings["t"]
    assert holding.since == 1 and len(holding.gone) == 89, "t.1 lingers: all others are told from it one by one"
    ann.told_gone(1)
    assert (holding.since, holding.gone, ann.machine._foreign) == (101, set(), set())
    assert ann.opens(100).send == [] and ann.opens(101).send == [("one", Started("t.101"))]
