"""The far end of a station's link to the broker: items become slots of their topics, filled slots acknowledgements.

A slot is filled once, whoever writes it how often; so whatever a restarted station repeats changes nothing. The id of
an item names the journal it comes from (`founding`): a slot that was filled from another one cannot be ours any more.
"""

import asyncio
import logging
from collections.abc import Callable

from seriatim.brokers import Broker
from seriatim.model import Event, JournalError, Node, Number, SeriatimError, Topic
from seriatim.protocols.atoms.live_messages import encode_item, slot_of
from seriatim.protocols.atoms.messages import Item
from seriatim.protocols.atoms.overlaps import topic_of
from seriatim.protocols.link import Frame
from seriatim.protocols.machine import Payload
from seriatim.protocols.tree.messages import Write, Written

logger = logging.getLogger(__name__)


class ItemPort:
    """`acknowledge` is told how many frames the broker has, without holes. `received`: how many it had already.

    `end` is told that nothing can be written any more, and why.
    """

    def __init__(
        self,
        station: Node,
        broker: Broker,
        acknowledge: Callable[[int], None],
        end: Callable[[JournalError], None],
        *,
        received: int,
        founding: str,
    ) -> None:
        self.received = received
        self.refused: str = ""  # why the broker last said no
        self._station = station
        self._acknowledge = acknowledge
        self._end = end
        self._suffix = f"/{founding}" if founding else ""  # journals of before foundings had ids
        self._under_way: dict[tuple[Topic, Number], tuple[int, str]] = {}
        self._done: set[int] = set()
        self._is_telling = False
        self._port = broker.attach(station, self._from_broker, self._refused)

    def send(self, frame: "Frame[Item]") -> None:
        """Write one item; a repeat is written again, since the first attempt may have been lost."""
        item = frame.body
        if item is None or frame.number <= self.received:
            self._tell_soon()
            return
        topic, slot, id = topic_of(item.group), slot_of(item), f"{item.group}/{item.number}{self._suffix}"
        self._under_way[topic, slot] = (frame.number, id)
        write = Write(topic, slot, {}, Event(id, topic, self._station, encode_item(item)))
        try:
            self._port.send(write)
        except SeriatimError as error:  # a broker must not; that it does is no reason for a station to end
            self._refused(write, error)

    async def close(self) -> None:
        """Nothing more is written."""
        await self._port.close()

    def _from_broker(self, message: Payload) -> None:
        if not isinstance(message, Written):
            return
        found = self._under_way.pop((message.topic, message.number), None)
        if found is None:
            return
        number, id = found
        if message.event_id != id and _has_place_of(id.removesuffix(self._suffix), message.event_id):
            self._end(
                JournalError(
                    f"on the broker, the place of {id} is filled: {message.event_id}, written by a station with "
                    f"another journal. The journal of {self._station} was lost, or does not belong to what the broker "
                    "keeps. Restore it; or begin anew, with empty journals on all nodes and a new cluster name"
                )
            )
            return
        if message.event_id != id:
            extra = {"at": self._station, "topic": message.topic, "item": id, "found": message.event_id}
            logger.error(
                "somebody else has written to the place of an item; who may is the broker's to say", extra=extra
            )
        self.refused = ""
        self._done.add(number)
        while self.received + 1 in self._done:
            self.received += 1
            self._done.discard(self.received)
        self._tell_soon()

    def _refused(self, message: Payload, error: SeriatimError) -> None:
        """Kept, and tried again: nothing is lost while somebody sees to the broker."""
        self.refused = str(error)
        logger.error("the broker does not take an item", extra={"at": self._station, "reason": str(error)})

    def _tell_soon(self) -> None:
        if not self._is_telling:
            self._is_telling = True
            asyncio.get_running_loop().call_soon(self._tell)

    def _tell(self) -> None:
        self._is_telling = False
        self._acknowledge(self.received)


def _has_place_of(item: str, found: str | None) -> bool:
    """Whether this is the id of the same item, of any founding."""
    return found is not None and (found == item or found.startswith(f"{item}/"))
