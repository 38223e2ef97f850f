"""The root changes the layout of its cluster: one change at a time, each registered before and after it is made.

A change of addresses is made by registering it. A change of the tree's shape is registered as being under way; then
the processes let the new node in, the machine of the root makes the change, and it is registered as made. So whoever
crashes, the next process that runs the root finds what is under way, and goes on. Bad wishes are refused by name,
before anything changes.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, assert_never

from msgspec.json import encode

from seriatim.live.tree.wishes import as_change
from seriatim.model import SeriatimError
from seriatim.order import ShapeChange, ShapeKind
from seriatim.protocols.machine import Payload
from seriatim.protocols.tree.messages import CancelReshape, Reshape, ReshapeEnded, ReshapeStep
from seriatim.server.changing import AskLayout, ChangeStep, LayoutAnswer, LayoutQuestion, StartChange, StopChange
from seriatim.server.description import look_subject
from seriatim.server.layout import Change, ChangeKind, Layout

if TYPE_CHECKING:
    from seriatim.live.tree.served import ServedNode

logger = logging.getLogger(__name__)

LOOK_S = 0.5
TELL_S = 0.2
ENDED_MAX = 1_000
KINDS: dict[ChangeKind, ShapeKind] = {"add": "join", "remove": "leave", "root": "root"}


class Reshaper:
    """Changes the layout while its node is the root and runs in this process."""

    def __init__(self, served: "ServedNode") -> None:
        self._served = served
        self._process = served.process
        self._agreement = served.process.agreement
        self._beginning: dict[str, asyncio.Task[None]] = {}
        self._failed: dict[str, str] = {}  # changes that were not made, and why
        self._step: ChangeStep = ""
        self._news = asyncio.Event()

    # ── operators ─────────────────────────────────────────────────────────────────────────────────────────────────

    def answer(self, question: LayoutQuestion) -> bytes | None:
        """The answer to a question about the layout. None: this node is not the root, and does not know of that
        change."""
        if not self.is_root and self._agreement.layout.ended(question.id) is None:
            return None
        refused = self._refused(question)
        if not refused:
            match question:
                case StartChange():
                    self._start(question)
                case StopChange():
                    self._stop(question)
                case AskLayout():
                    pass
                case _:
                    assert_never(question)
        return encode(self._told(question.id, refused))

    @property
    def is_root(self) -> bool:
        host = self._served.host
        if host is None or self._served.role != "active" or not host.machine.is_acting:
            return False
        return host.machine.inner.is_member and host.machine.inner.tree.root == self._served.node

    def _told(self, id_: str, refused: str) -> LayoutAnswer:
        layout = self._agreement.layout
        made, change = layout.ended(id_), layout.change
        step: ChangeStep = ""
        if id_ in self._beginning:
            step = "begin"
        elif change is not None and change.id == id_:
            step = self._step or "prepare"
        return LayoutAnswer(
            id=id_,
            step=step,
            made=made,
            reason=self._failed.get(id_, ""),
            refused=refused,
            other=change if change is not None and change.id != id_ else None,
            runs_new=self._process.runs_all,
        )

    def _refused(self, question: LayoutQuestion) -> str:
        """Why this cannot be asked. Empty: it can."""
        if not self._agreement.changes:
            return "this broker has no place where a layout is registered, so its nodes do not change while they run"
        if isinstance(question, StartChange) and not self._is_known(question.id):
            if (other := self._agreement.layout.change) is not None:
                return f"another change is under way: {other.text}; try again when it has ended"
            if self._beginning:
                return "another change is just beginning; try again when it has ended"
        return ""

    def _is_known(self, id_: str) -> bool:
        layout = self._agreement.layout
        is_under_way = layout.change is not None and layout.change.id == id_
        return is_under_way or id_ in self._beginning or id_ in self._failed or layout.ended(id_) is not None

    def _start(self, question: StartChange) -> None:
        if self._is_known(question.id):
            return  # a repeat
        task = asyncio.get_running_loop().create_task(self._begin(question))
        self._beginning[question.id] = task
        task.add_done_callback(lambda _: self._beginning.pop(question.id, None))

    async def _begin(self, question: StartChange) -> None:
        """Check it, and register that it is under way, or made."""
        try:
            await self._agreement.look()
            change = await as_change(question, self._process, self._agreement.layout)
            assert self._served.host is not None, "it has just answered"
            default_home = self._served.host.machine.inner.tree.default_home or ""

            def begun(layout: Layout) -> Layout:
                if layout.change is not None or layout.ended(change.id) is not None:
                    return layout
                after = layout.begun(change, default_home if change.kind == "root" else "")
                return after.finished(_now()) if change.kind == "addresses" else after

            if not await self._agreement.change(begun):
                self._fail(question.id, "another process has changed the layout at the same time; try again")
                return
            text = "layout changes: cluster=%s change=%s"
            logger.info(text, self._agreement.layout.cluster, change.text)
            self._step = ""
            await self._tell_all()
            self._news.set()
        except SeriatimError as error:
            self._fail(question.id, str(error))

    def _fail(self, id_: str, reason: str) -> None:
        logger.warning("layout not changed: cluster=%s reason=%s", self._agreement.layout.cluster, reason)
        self._failed[id_] = reason
        while len(self._failed) > ENDED_MAX:
            del self._failed[next(iter(self._failed))]

    def _stop(self, question: StopChange) -> None:
        change, host = self._agreement.layout.change, self._served.host
        if change is None or change.id != question.id or host is None:
            return
        if host.is_reshaping(change.node):
            host.command(CancelReshape(change.node))
        elif change.node not in host.machine.inner.tree.parents:
            self._fail(change.id, "cancelled")
            self._news.set()

    # ── the machine ───────────────────────────────────────────────────────────────────────────────────────────────

    def told(self, notice: Payload) -> None:
        """Take what the machine says of changes of shape."""
        match notice:
            case ReshapeStep():
                self._step = notice.step
                logger.info("tree changes: change=%s step=%s", _text(notice.change), notice.step)
            case ReshapeEnded():
                change = self._agreement.layout.change
                if notice.reason and change is not None and change.node == notice.change.node:
                    self._fail(change.id, notice.reason)
                else:
                    logger.info("tree has changed: change=%s move=%s", _text(notice.change), notice.change.move)
                self._step = "register"
                self._news.set()

    async def run(self) -> None:
        """Carry out what the layout says to be under way, for as long as the node runs here."""
        while True:
            try:
                await self._carry_out()
            except SeriatimError as error:
                logger.debug("layout not changed yet: node=%s reason=%s", self._served.node, error)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S):
                    await self._news.wait()
            self._news.clear()

    async def _carry_out(self) -> None:
        """Finish the change when the machine has nothing more to do for it: then every node has journaled the new
        shape.

        A node that starts again compares its journal with what is registered.
        """
        change, host = self._agreement.layout.change, self._served.host
        if change is None or host is None or not self.is_root or host.is_reshaping(change.node):
            return
        is_there = change.node in host.machine.inner.tree.parents
        if is_there != (change.kind == "remove"):
            await self._end(change, lambda layout: layout.finished(_now()))
        elif change.id in self._failed:
            await self._end(change, lambda layout: layout.abandoned())
        else:
            host.command(Reshape(KINDS[change.kind], change.node, change.parent))

    async def _end(self, change: Change, end: Callable[[Layout], Layout]) -> None:
        def ended(layout: Layout) -> Layout:
            is_it = layout.change is not None and layout.change.id == change.id
            return end(layout) if is_it else layout

        if await self._agreement.change(ended):
            self._step = ""
            await self._tell_all()

    async def _tell_all(self) -> None:
        """Let the other processes look at the layout now, and not only at their next look."""
        requests = self._process.broker.requests
        if requests is not None:
            subject = look_subject(self._agreement.layout.cluster)
            await requests.request_all(subject, b"", TELL_S, lambda _: False)

    def explain(self) -> list[str]:
        change = self._agreement.layout.change
        if change is None or not self.is_root:
            return []
        return [f"layout: it is under way that {change.text}"]

    async def stop(self) -> None:
        for task in list(self._beginning.values()):
            task.cancel()
        await asyncio.gather(*self._beginning.values(), return_exceptions=True)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _text(change: ShapeChange) -> str:
    return f"{change.kind} {change.node}" + (f" at {change.at}" if change.at else "")
