"""The parts of the stories of test_variants.py: small worlds of the tree, walked with faults."""

from collections.abc import Mapping, Sequence

from seriatim.lab.explore.engine.walk import PATIENCE
from seriatim.lab.explore.engine.world import Budget
from seriatim.lab.explore.tree.cast import TreeWorld, change, publish
from seriatim.lab.explore.tree.random_worlds import may_lose
from seriatim.model import Address
from seriatim.order import SequencingTree
from seriatim.protocols.machine import Payload
from seriatim.protocols.tree import TreeOptions
from seriatim.protocols.with_broker import Change, Publish

ONE = SequencingTree.single("AB")
TICKET = TreeOptions(mode="ticket")

Commands = Mapping[Address, Sequence[Payload]]


def story(
    scripts: Commands,
    options: TreeOptions = TICKET,
    tree: SequencingTree = ONE,
    setup: dict[Address, str] | None = None,
    budgets: dict[Address, Budget] | None = None,
    readers: dict[Address, Address] | None = None,
    one_at_a_time: frozenset[Address] = frozenset(),
) -> TreeWorld:
    return TreeWorld(
        name="story",
        tree=tree,
        options=options,
        scripts=scripts,
        setup=[(subscriber, change(topics)) for subscriber, topics in (setup or {}).items()],
        budgets=budgets or {},
        may_lose=may_lose,
        readers=readers or {},
        one_at_a_time=one_at_a_time,
        with_links=True,
        broker_per_topic=False,
        patience=PATIENCE,
    )


def events(publisher: Address, topics: str) -> list[Publish | Change]:
    """One event after the other on these topics."""
    return [publish(publisher, topic, f"{publisher}{i}") for i, topic in enumerate(topics.split(), 1)]
