"""What random walks hardly meet: a node loses its journal after it has answered a join, before others know why.

The floor of the join then names numbers that nobody else has heard of, so they are issued anew.
"""

from functools import partial
from random import Random

from seriatim.lab.explore.engine.plan import Journey, Walked, cast_with, gives, walk_plan
from seriatim.lab.explore.engine.process import at
from seriatim.lab.explore.engine.run import Run
from seriatim.lab.explore.engine.world import Budget, Channel, Transition
from seriatim.lab.explore.tree.cast import PROPER, Cast, change
from seriatim.lab.explore.tree.random_worlds import TreeWalk
from seriatim.model import Address
from seriatim.order import SequencingTree
from seriatim.protocols.link import Frame
from seriatim.protocols.tree import TreeOptions
from seriatim.protocols.tree.messages import Finished, Routed
from tests.lab.explore.stories import events, story

WORLD = story(
    {"p": events("p", "B B B"), "z": [change("A")], "x": [change("A")], "q": events("q", "A A")},
    TreeOptions(mode="log", order_log=False),
    SequencingTree({"n1": None, "n2": "n1"}, {"A": "n1", "B": "n2"}),
    setup={"z": "B", "x": "B", "y": "A B"},
    budgets={"n1": Budget(losses_of_journal=1), "n2": Budget(ticks=9, losses=300)},
)
WALKS = 400


class LossAfterJoin(TreeWalk):
    """Finished stamps get lost on their way to n2, and n1 loses its journal once z has joined A; A's events follow."""

    def __init__(self, run: Run, random: Random, met: list[bool]) -> None:
        super().__init__(run, random)
        self._met = met
        self._is_lost = False

    def _deliver(self, fast: list[Channel]) -> None:
        channel = Channel("n1", "n2", "")
        waiting = self.run.channels.get(channel)
        frame = waiting[0] if waiting else None
        body = frame.body if isinstance(frame, Frame) and frame.epoch == 1 else None
        can_lose = self.run.processes["n2"].budget.losses > 0
        if can_lose and isinstance(body, Routed) and isinstance(body.body, Finished):
            self._take(Transition("lose", *at(channel)))
        else:
            super()._deliver(fast)

    def _take(self, transition: Transition) -> None:
        super()._take(transition)
        if self._is_lost or transition.kind != "deliver" or transition.target != "z":
            return
        state = self.run.processes["z"].machine.state  # type: ignore[union-attr]
        if "A" in state.holdings and state.lanes["A"].open:
            self._is_lost = True
            self._met.append(any(number > state.lanes["B"].done for number in state.holdings["A"].floor.values()))
            super()._take(Transition("forget", "n1"))
            self._publish("q")

    def _publish(self, publisher: Address) -> None:
        process = self.run.processes[publisher]
        for _ in range(30):
            if process.issued < len(process.script) and process.can_issue():
                super()._take(Transition("issue", publisher))
            for channel in [each for each in self.run.channels if publisher in (each.source, each.target)]:
                super()._take(Transition("deliver", *at(channel)))

    def _end(self) -> None:
        for _ in range(600):
            if self.run.channels:
                self._deliver(self._fast_channels())
        super()._end()


def walks(cast: Cast | None, met: list[bool]) -> list[Walked]:
    journey = Journey(WORLD, partial(LossAfterJoin, met=met))
    return [walk_plan(journey, Random(f"floor/{index}"), cast) for index in range(WALKS)]


def test_a_floor_that_only_the_lost_node_knew_is_not_waited_for() -> None:
    met: list[bool] = []
    assert [walked.violations for walked in walks(None, met) if walked.violations] == []
    assert any(met), "no walk met the case"


def test_who_goes_on_waiting_for_such_a_floor_waits_for_ever() -> None:
    broken = cast_with(PROPER, "subscriber", _waits_for_floor=gives(False))
    kinds = {each.kind for walked in walks(broken, []) for each in walked.violations}
    assert kinds == {"stuck"}
