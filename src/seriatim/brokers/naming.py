"""Which names topics may have, which topic orders another, and how names become names of streams and subjects.

Every broker takes the same names, so that a program that runs on `memory://` runs on a real server: a topic is a NATS
subject without wildcards. Names below `_` and `$` belong to servers and to Seriatim itself.

*Buckets.* A topic is ordered as itself, or as the bucket it shares with others (`bucket-017`): fewer logs, coarser
order. The bucket is a hash of the name that is the same in every process and for all time.

*Streams.* Stream names may not hold a dot, so a name is escaped: letters, digits, `-` and `_` stand for themselves, a
dot becomes `+`, everything else `%XX` (of its UTF-8 bytes). Different names stay different.
"""

import functools
import hashlib
import re

from seriatim.model import InputError, Node, Topic
from seriatim.model.topics import check_topic as check_topic

STREAM_BYTES_MAX = 240  # a stream is a folder on the server's disk, and a folder's name has at most 255 bytes
BUCKETS_MAX = 4_096

BEGUN = "$begun"  # in place of a topic; none is called so

_SPECIAL = re.compile(r"[^A-Za-z0-9_-]")
_CLUSTER = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,31}")
_ESCAPED = re.compile(r"(?:%[0-9A-F]{2})+")


def check_cluster(cluster: str) -> None:
    """The name of a cluster is part of subjects and streams."""
    if _CLUSTER.fullmatch(cluster) is None or cluster.upper() == "INBOX":
        raise InputError(
            "cluster", f"{cluster!r} is not a valid name", "use up to 32 letters, digits and -, and not INBOX"
        )


def check_buckets(buckets: int) -> None:
    """0 is allowed: every topic is ordered as itself."""
    if not 0 <= buckets <= BUCKETS_MAX:
        raise InputError("buckets", f"{buckets} is not from 0 to {BUCKETS_MAX}", "64 is usual; 0: one log per topic")


def bucket_of(topic: Topic, buckets: int) -> Topic:
    """The bucket a topic is in. A name that already is a bucket is itself."""
    if is_bucket(topic, buckets):
        return topic
    digest = hashlib.blake2b(topic.encode("utf-8"), digest_size=8).digest()
    return _bucket_name(int.from_bytes(digest, "big") % buckets)


def is_bucket(topic: Topic, buckets: int) -> bool:
    """Whether this is the name of a bucket, if there are `buckets` of them."""
    number = topic.removeprefix("bucket-")
    return number.isascii() and number.isdigit() and int(number) < buckets and topic == _bucket_name(int(number))


def _bucket_name(number: int) -> Topic:
    return f"bucket-{number:03d}"


@functools.lru_cache(maxsize=65_536)
def ordered_topic(topic: Topic, buckets: int) -> Topic:
    """The topic under which `topic` is ordered; refuses bad names."""
    check_topic(topic)
    return bucket_of(topic, buckets) if buckets else topic


@functools.lru_cache(maxsize=65_536)
def escape(name: str) -> str:
    """One word, safe in a subject and in the name of a stream. Different names give different words."""
    return _SPECIAL.sub(lambda found: "".join(f"%{byte:02X}" for byte in found[0].encode()), name).replace("%2E", "+")


def unescape(word: str) -> str:
    """The name that `escape` made this word from."""
    return _ESCAPED.sub(
        lambda found: bytes.fromhex(found[0].replace("%", "")).decode("utf-8", "replace"), word.replace("+", ".")
    )


class Names:
    """The names of one cluster's streams and subjects on a server."""

    def __init__(self, cluster: str, buckets: int = 0) -> None:
        check_cluster(cluster)
        check_buckets(buckets)
        self.cluster = cluster
        self.buckets = buckets
        self.prefix = f"_{cluster}"  # no topic begins with an underscore

    def log_stream(self, topic: Topic) -> str:
        """The stream that is the log of an ordered topic."""
        if self.buckets:
            return f"{self.cluster}-{topic}"
        return self._stream("topic", topic)

    def log_subject(self, topic: Topic) -> str:
        """The subject on which events of an ordered topic are published if they name no other subject."""
        return f"{self.prefix}.buckets.{topic}" if self.buckets else topic

    def slots_stream(self, topic: Topic) -> str:
        """The stream of a topic's write-once slots."""
        return self._stream("slots", topic)

    def slots_subject(self, topic: Topic) -> str:
        """The subject below which slots are published."""
        return f"{self.prefix}.slots.{escape(topic)}"

    def stamps_stream(self, node: Node) -> str:
        """The stream of all stamps of one home: its stamp channel."""
        return self._stream("stamps", node)

    def stamps_subject(self, node: Node, topic: Topic = "") -> str:
        """A topic on the stamp channel of this home. Without one: all topics; without the other: all homes."""
        return f"{self.prefix}.stamps.{escape(node) or '*'}.{escape(topic) or '*'}"

    def begun_subject(self, node: Node) -> str:
        """Where a life of a home says that it begins, in the stream of its stamps."""
        return f"{self.prefix}.stamps.{escape(node)}.{BEGUN}"

    def stages_subject(self, node: Node, topic: Topic) -> str:
        """Where a node tells stamps of a topic as far as they are. No stream keeps it."""
        return f"{self.prefix}.stages.{escape(node)}.{escape(topic)}"

    def register_stream(self, name: str) -> str:
        """The stream that holds one record of the cluster."""
        return f"{self.cluster}-{name}"

    def register_subject(self, name: str) -> str:
        """The subject of this record."""
        return f"{self.prefix}.{name}"

    @property
    def order_stream(self) -> str:
        """The stream of the order log."""
        return f"{self.cluster}-order"

    @property
    def order_subject(self) -> str:
        """The subject on which the root publishes ranges of the order log."""
        return f"{self.prefix}.order"

    @property
    def lives_stream(self) -> str:
        """The stream of registered lives."""
        return f"{self.cluster}-lives"

    def lives_subject(self, kind: str, name: str) -> str:
        """Where the lives of whoever has this name are registered."""
        return f"{self.prefix}.lives.{kind}.{escape(name)}"

    def alive_subject(self, kind: str, name: str) -> str:
        """Where whoever has this name is asked whether it lives."""
        return f"{self.prefix}.alive.{kind}.{escape(name)}"

    def logs_stream(self, table: str) -> str:
        """The stream of one table of clients' logs: deliveries, publications, subscriptions."""
        return self._stream("logs", table)

    def logs_subject(self, table: str, client: str = "") -> str:
        """What rows of such a table are published as by one client; without one, by all of them."""
        return f"{self.prefix}.logs.{table}.{escape(client) or '*'}"

    def _stream(self, kind: str, name: str) -> str:
        stream = f"{self.cluster}-{kind}-{escape(name)}"
        if len(stream) > STREAM_BYTES_MAX:
            raise InputError(
                f"topic {name!r}",
                f"the name of its stream would have {len(stream)} bytes, and {STREAM_BYTES_MAX} are allowed",
                "give it a shorter name; every character that is not a letter or digit takes three bytes or more",
            )
        return stream
