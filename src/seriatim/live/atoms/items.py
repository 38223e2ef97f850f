"""The broker's end of a station's link: an item is written to a slot of its topic, a filled slot is an acknowledgement.

A slot is filled once, however often it is written. So a restarted station can repeat items without effect. The id of an
item names the journal it comes from (`founding`): a slot that was filled from another journal is not ours.
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
from seriatim.protocols.with_broker import Write, Written

logger = logging.getLogger(__name__)


class ItemPort:
    """`acknowledge` is called with the number of frames that the broker has without holes; it starts at `received`.

    `end` is called with the reason when no more items can be written.
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
        self.refused: str = ""  # the broker's last refusal
        self._station = station
        self._acknowledge = acknowledge
        self._end = end
        self._suffix = f"/{founding}" if founding else ""  # old journals have no id
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
        except SeriatimError as error:  # a broker must not raise; if it does, the station continues
            self._refused(write, error)

    async def close(self) -> None:
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
                    f"the slot of {id} on the broker is filled with {message.event_id}, written by a station with "
                    f"another journal: the journal of {self._station} was lost, or belongs to another cluster. "
                    "Restore it; or start over, with empty journals on all nodes and a new cluster name"
                )
            )
            return
        if message.event_id != id:
            text = "slot of an item was written by somebody else; check who may write on the broker: "
            fields = "node=%s topic=%s item=%s found=%s"
            logger.error(text + fields, self._station, message.topic, id, message.event_id)
        self.refused = ""
        self._done.add(number)
        while self.received + 1 in self._done:
            self.received += 1
            self._done.discard(self.received)
        self._tell_soon()

    def _refused(self, message: Payload, error: SeriatimError) -> None:
        """The item is kept and written again later, so nothing is lost."""
        self.refused = str(error)
        logger.error("broker refuses an item: node=%s reason=%s", self._station, error)

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
