"""All processes of a cluster go by one layout: it is registered on the broker, and whoever has another one stops.

A process compares its file with what is registered before it starts a node. The first process registers its own. Where
the broker has no register, whoever already describes the cluster is compared with. A stronger order (pairwise to
global) is registered in place of the weaker one. Later a process looks now and then. If its layout is not the one that
counts any more, it describes the cluster to nobody, and health says so; it goes on serving those that know it.
"""

import asyncio
import logging
import time
from collections.abc import Iterator

from seriatim.brokers import Broker
from seriatim.brokers.capabilities import Register
from seriatim.model import ConnectionFailed, InputError, RemoteError, RequestRefused
from seriatim.server.description import ClusterDescription, decode_description, describe_subject
from seriatim.server.health import Trouble
from seriatim.server.layout import Layout, decode_layout, difference, encode_layout

logger = logging.getLogger(__name__)

LOOK_S = 5.0
ANSWER_S = 1.0
RETRY_S = 0.25
SILENCE_S = 30.0  # for so long the broker may leave questions about the layout without an answer
NAME = "layout"


class Agreement:
    """The layout of one process, and whether it is the one that counts. `version`: 0, if it is registered nowhere."""

    def __init__(self, broker: Broker, layout: Layout) -> None:
        self.layout = layout
        self.version = 0
        self.problem = ""  # why it does not count any more
        self._broker = broker
        self._register = broker.register(NAME)

    async def reach(self) -> None:
        """Agree before anything starts. InputError: the cluster has another layout.

        Servers that have just been told of a stream may not answer questions about it, so a silence is not an answer.
        """
        if self._register is None:
            await self._compare_with_others()
            return
        deadline_s = time.monotonic() + SILENCE_S
        while True:
            try:
                await self._agree(self._register)
                return
            except ConnectionFailed as error:
                if time.monotonic() >= deadline_s:
                    raise
                logger.warning("layout not agreed yet: cluster=%s reason=%s", self.layout.cluster, error)
                await asyncio.sleep(RETRY_S)

    async def _agree(self, register: Register) -> None:
        while not self.version:
            found = await register.read()
            if found is not None:
                registered = decode_layout(found[0])
                if not self._is_stronger_than(registered):
                    self._check(registered, "registered on the broker")
                    self.version = found[1]
                    return
                text = "order of the cluster becomes stronger: cluster=%s from=%s to=%s"
                logger.warning(text, self.layout.cluster, registered.order, self.layout.order)
            after = found[1] if found is not None else 0
            self.version = await register.write(encode_layout(self.layout), after) or 0

    async def _compare_with_others(self) -> None:
        if (told := await self._description()) is not None and not self._is_stronger_than(theirs := Layout.of(told)):
            self._check(theirs, "described by its sequencers")

    async def _description(self) -> ClusterDescription | None:
        """What another process says, or has left on the broker."""
        subject, data = describe_subject(self.layout.cluster), None
        if (requests := self._broker.requests) is not None:
            data = await requests.request(subject, b"", ANSWER_S)
        elif (records := self._broker.records) is not None:
            data = await records.kept(subject)
        return decode_description(data) if data is not None else None

    def _is_stronger_than(self, theirs: Layout) -> bool:
        return theirs.digest == self.layout.digest and theirs.strength < self.layout.strength

    def _check(self, theirs: Layout, how: str) -> None:
        differs = difference(self.layout, theirs)
        if not differs:
            return
        cluster = self.layout.cluster
        logger.error("layout differs from that of the cluster: cluster=%s difference=%s", cluster, differs)
        problem = f"cluster {cluster!r} has another layout, {how}: {differs}"
        fix = "start it with the file of that cluster, or give this one another name"
        if self._register is not None:
            fix += f" (if nothing of the old cluster is needed any more: delete the stream {cluster}-{NAME})"
        raise InputError("cluster", problem, fix)

    async def watch(self) -> None:
        """Look now and then whether the layout still counts."""
        while self._register is not None:
            await asyncio.sleep(LOOK_S)
            try:
                await self._look()
            except (ConnectionFailed, RequestRefused, RemoteError) as error:
                logger.debug("cannot look at the layout: reason=%s", error)

    async def _look(self) -> None:
        assert self._register is not None, "else nobody looks"
        found = await self._register.read()
        if found is None:  # somebody has deleted it
            await self._register.write(encode_layout(self.layout), 0)
            return
        differs = difference(self.layout, decode_layout(found[0]))
        if differs and not self.problem:
            text = "another layout was registered, so clients are not told of this one: cluster=%s difference=%s"
            logger.error(text, self.layout.cluster, differs)
        self.problem = differs
        self.version = self.version if differs else found[1]

    def troubles(self) -> Iterator[Trouble]:
        if self.problem:
            reason = f"the cluster has another layout now: {self.problem}; start this process with the cluster's file"
            yield Trouble("layout", "", reason)
