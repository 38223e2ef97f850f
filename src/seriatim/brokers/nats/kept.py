"""What the server keeps of a node that has lost its journal: its stamps, those of others, and the order log.

All stamp channels are read once, from the beginning. Nobody else can tell what the node has named, and a difference
names a topic only once. It is read in a thread, with a connection of its own.
"""

from collections.abc import Iterable

from msgspec import structs

from seriatim.brokers.naming import BEGUN, unescape
from seriatim.brokers.nats.bulk.reader import NatsReader
from seriatim.model import Node, Number, Topic
from seriatim.order.stamp import OPAQUE
from seriatim.protocols.with_broker import Begun


def with_details(reader: NatsReader, node: Node, begun: Begun, topics: Iterable[Topic], *, orders: bool) -> Begun:
    """The answer to a node that heals. `topics`: known besides those that the server shows; what nobody knows has no
    log, and no number of it can be lost. Blocks. SeriatimError: the server cannot be read."""
    catalogue = reader.catalogue()
    names, named = catalogue.topic_names(), dict[Topic, Number]()
    names.know(topics)
    ranges: dict[Topic, list[tuple[Number, Number]]] = {}
    lost: dict[Topic, list[tuple[Number, Number]]] = {}
    says, furthest = dict[Topic, tuple[Number, Number]](), dict[Topic, Number]()  # of stages: the latest, and any
    for stream in catalogue.of("stamps"):
        for messages in reader.read(stream, stream.first, stream.next - 1):
            for subject, body in zip(messages.subjects, messages.bodies, strict=True):
                topic = unescape(subject.decode("utf-8", "replace").rpartition(".")[2])
                for stamp in reader.stamps(body, topic, names) if topic != BEGUN else ():
                    ranges.setdefault(topic, []).append((stamp.first, stamp.last))
                    says[topic] = max(says.get(topic, (0, 0)), (stamp.last, stamp.ahead))
                    furthest[topic] = max(furthest.get(topic, 0), stamp.ahead)
                    if stamp.is_lost:
                        lost.setdefault(topic, []).append((stamp.first, stamp.last))
                    if stream.holds == node:
                        for other, number in stamp.entries.items():
                            if not other.startswith(OPAQUE):
                                named[other] = max(number, named.get(other, 0))
    placed: dict[Topic, Number] = {}
    for stream in catalogue.of("order") if orders else ():
        for messages in reader.read(stream, stream.first, stream.next - 1):
            for body in messages.bodies:
                placed.update((each.topic, each.last) for each in reader.order(body).ranges)
    kept, holes = dict.fromkeys(catalogue.topics, 0), {}
    for topic, found in sorted(ranges.items()):
        kept[topic] = max(last for _, last in found)
        if missing := _between(sorted(found)):
            holes[topic] = missing
    ahead = {topic: furthest[topic] if latest else None for topic, (_, latest) in says.items()}
    return structs.replace(begun, kept=kept, named=named, holes=holes, placed=placed, lost=lost, ahead=ahead)


def _between(ranges: list[tuple[Number, Number]]) -> list[tuple[Number, Number]]:
    """What lies between these ranges. What is before the first one was dropped by retention: it was stamped once."""
    holes, known = [], ranges[0][1]
    for first, last in ranges[1:]:
        if first > known + 1:
            holes.append((known + 1, first - 1))
        known = max(known, last)
    return holes
