"""The streams a cluster needs on a JetStream server, made when they are first used.

*A log* is a stream that captures the subject of one topic, or those of the topics in one bucket; a position in it is
a number. Somebody else's stream is used if it captures exactly that topic and keeps what it captures; it is never
changed. *Slots* are streams that take one message per subject, and every slot has a subject of its own, so a slot is
filled once for all time. *Stamps*: one stream per home node, one subject per topic. *The order log*: one stream.

The subjects of a bucket's stream are the names in use; members.py adds them.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, Literal

from msgspec import Struct
from nats.aio.msg import Msg

from seriatim.brokers.naming import Names, check_topic, is_bucket
from seriatim.brokers.nats.api import NANOSECONDS, Api, StreamConfig, StreamNameInUse, StreamNotFound, SubjectsOverlap
from seriatim.brokers.nats.identity import continuing
from seriatim.brokers.nats.members import Members
from seriatim.model import InputError, Node, Number, SeriatimError, Topic

logger = logging.getLogger(__name__)

RETRY_S = 0.05
DUPLICATES_S = 120.0
SECONDS_MAX = 1e9  # the server counts nanoseconds in 64 bits
BYTES_MAX = 2**63 - 1
DELETED = "$JS.EVENT.ADVISORY.STREAM.DELETED.*"  # where the server tells of streams

LAST_ONLY = {"max_msgs_per_subject": 1, "max_age": 0}  # names in use, and who adds them: kept for ever
# A slot is filled once: the second message for its subject is refused, and no header may take the first one away.
ONCE = {"discard": "new", "max_msgs_per_subject": 1, "discard_new_per_subject": True, "allow_rollup_hdrs": False}


class StreamOptions(Struct, frozen=True, kw_only=True):
    """How streams that do not exist yet are made.

    `max_age_s`: how long events, slots and stamps are kept; None: until the disk is full. A stream of somebody else may
    keep its events for longer, but an event cannot be delivered without its stamp. `order_max_age_s`: how long the
    order log is kept; 0: for ever.
    """

    storage: Literal["file", "memory"] = "file"
    replicas: int = 1
    max_age_s: float | None = None
    max_bytes: int | None = None  # of a topic's log; beyond that its oldest events are removed
    duplicates_s: float = DUPLICATES_S  # for so long the server recognises a repeated event by its id
    order_max_age_s: float = 0.0

    def __post_init__(self) -> None:
        if self.storage not in ("file", "memory"):
            raise InputError("storage", f"unknown storage {self.storage!r}", 'use "file" or "memory"')
        for name, most, fix in (
            ("replicas", 5, "use 1, or 3 on a cluster"),
            ("max_age_s", SECONDS_MAX, "give seconds, or None for no limit"),
            ("max_bytes", BYTES_MAX, "give bytes, or None for no limit"),
            ("duplicates_s", SECONDS_MAX, f"give seconds; {DUPLICATES_S:g} is usual"),
        ):
            value = getattr(self, name)
            if value is not None and not 1 <= value <= most:
                shown = f"{most:g}" if isinstance(most, float) else most
                raise InputError(name, f"{value} is not from 1 to {shown}", fix)
        if self.order_max_age_s and not 1 <= self.order_max_age_s <= SECONDS_MAX:
            problem = f"{self.order_max_age_s} is not from 1 to {SECONDS_MAX:g}"
            raise InputError("order_max_age_s", problem, "give seconds, or 0 for ever")


class Streams:
    """Finds or creates streams, and remembers which ones exist."""

    def __init__(self, api: Api, names: Names, options: StreamOptions) -> None:
        self.api = api
        self.names = names
        self.options = options
        self._logs: dict[Topic, str] = {}
        self._captured: dict[Topic, set[str]] = {}  # subjects that a bucket's stream captures, as far as we know
        self._wanted: dict[Topic, set[str]] = {}  # subjects that it must capture
        self._others: set[str] = set()  # streams of slots and stamps that are there
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self.members = Members(api, names)
        self._later: set[asyncio.Task[None]] = set()
        # How far the numbers of a topic went that was removed, else 0; and when its log was created, if that is known.
        self.ended: Callable[[Topic], Awaitable[tuple[Number, str]]] | None = None
        self._told_of_deleted: list[Callable[[str], None]] = []

    def hear_of_deleted(self, tell: Callable[[str], None]) -> None:
        """Call `tell` with the name of each stream that somebody deletes, as long as the server says so."""
        if not self._told_of_deleted:
            self.api.link.listen(DELETED, self._on_deleted, lambda _: None)  # who may not hear it looks now and then
        self._told_of_deleted.append(tell)

    def hear_no_more(self, tell: Callable[[str], None]) -> None:
        self._told_of_deleted.remove(tell)
        if not self._told_of_deleted:
            self.api.link.unlisten(DELETED)

    def _on_deleted(self, message: Msg) -> None:
        for tell in list(self._told_of_deleted):
            tell(message.subject.rpartition(".")[2])

    def close(self) -> None:
        for task in self._later:
            task.cancel()

    def forget(self, topic: Topic) -> None:
        """The server says that a topic's stream does not exist or lacks a subject: look it up again when needed."""
        self._logs.pop(topic, None)
        self._captured.pop(topic, None)

    def forget_other(self, stream: str) -> None:
        """Look a stream of slots, stamps, names or clients' logs up again when it is needed."""
        self._others.discard(stream)

    async def was_removed(self, topic: Topic) -> bool:
        """Whether an operator has removed this topic, and nothing of it was stamped since."""
        return self.ended is not None and (await self.ended(topic))[0] > 0

    # ── logs ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def want(self, topic: Topic, subject: str) -> bool:
        """Note that a name of a bucket is in use. True: its stream may not capture it yet, so call `capture`."""
        self._wanted.setdefault(topic, set()).add(subject)
        return subject not in self._captured.get(topic, ())

    def known_log(self, topic: Topic, subject: str | None = None) -> str | None:
        """The stream of a topic's log, if it is known to be there and to capture the subject."""
        stream = self._logs.get(topic)
        if stream is None or not self.names.buckets or subject is None:
            return stream
        return stream if subject in self._captured[topic] else None

    async def log(self, topic: Topic) -> str:
        """The stream of a topic's log, created if it does not exist."""
        await self.capture(topic)
        return self._logs[topic]

    async def capture(self, topic: Topic) -> dict[str, InputError]:
        """Let the topic's log capture every name that is in use. Returns the names that it cannot have, and why.

        The topic is checked, because a stream that captures a wildcard would take what belongs to others.
        """
        check_topic(topic)
        if self.names.buckets and not is_bucket(topic, self.names.buckets):
            raise InputError(f"topic {topic!r}", "topics share buckets here, and it is not a bucket", "name its bucket")
        async with self._locks[topic]:
            if self.names.buckets:
                return await self._bucket(topic)
            self._logs[topic] = self._logs.get(topic) or await self._topic(topic)
            return {}

    async def create_log(self, topic: Topic, first: Number, metadata: dict[str, str]) -> None:
        """Make the log of a topic again, whose first position is this one."""
        stream = self.names.log_stream(topic)
        subjects = [topic] if not self.names.buckets else [self.names.log_subject(topic)]
        config = self._log_config(stream, subjects)
        await self.api.create_stream({**config, "first_seq": first, "metadata": metadata})

    async def _topic(self, topic: Topic) -> str:
        stream = self.names.log_stream(topic)
        found = await self._find(stream)
        if found is not None:
            self._check_usable(found, topic)
            return stream
        config = self._log_config(stream, [topic])
        last, created = await self.ended(topic) if self.ended is not None else (0, "")
        if last:
            config |= {"first_seq": last + 1, "metadata": continuing(None, [created])}
        try:
            await self.api.create_stream(config)
        except StreamNameInUse:
            self._check_usable((await self.api.info(stream)).config, topic)
        except SubjectsOverlap:
            stream = await self._somebody_elses(topic)
        return stream

    async def _somebody_elses(self, topic: Topic) -> str:
        streams = await self.api.streams_with(topic)
        if len(streams) != 1:
            raise InputError(
                f"topic {topic}",
                f"the streams {', '.join(streams)} overlap with it, so it has no log of its own",
                "let one stream capture exactly this subject, or remove it from theirs",
            )
        self._check_usable((await self.api.info(streams[0])).config, topic)
        logger.info("using an existing stream: topic=%s stream=%s", topic, streams[0])
        return streams[0]

    def _check_usable(self, config: StreamConfig, topic: Topic) -> None:
        if (problem := _problem_with(config, topic, {})) is not None:
            raise InputError(
                f"topic {topic}",
                f"stream {config.name} {problem}",
                "give the topic a stream of its own that keeps events until a limit, or use another topic",
            )

    async def _bucket(self, topic: Topic) -> dict[str, InputError]:
        stream = self.names.log_stream(topic)
        wanted = self._wanted.setdefault(topic, set())
        refused: dict[str, InputError] = {}
        while True:
            try:
                captured = self.members.of((await self.api.info(stream)).config.subjects)
                missing = wanted - captured
                if not missing:
                    self._captured[topic] = captured
                    self._logs[topic] = stream
                    return refused
                taken = await self.members.captured_elsewhere(topic, missing)
                for name, streams in taken.items():
                    wanted.discard(name)  # the other names of the bucket must not suffer
                    refused[name] = InputError(
                        f"topic {name}",
                        f"stream {', '.join(streams)} captures it already, so it cannot be in stream {stream}",
                        "remove it there, use another name, or give every topic a stream of its own",
                    )
                if missing := missing - taken.keys():
                    await self._other(self.members.stream, self.members.subject, LAST_ONLY)
                    await self.members.add(topic, missing)
            except StreamNotFound:
                self.forget_other(self.members.stream)
                if not await self._create(self._log_config(stream, [self.names.log_subject(topic)])):
                    await asyncio.sleep(RETRY_S)  # made by somebody else, and not known everywhere yet

    def in_background(self, work: Coroutine[Any, Any, None]) -> None:
        """Run this in the background. It ends with the connection."""
        task = asyncio.get_running_loop().create_task(work)
        self._later.add(task)
        task.add_done_callback(self._later.discard)

    async def prepare(self, topic: Topic) -> None:
        """Add the names in use to the bucket's stream, before anything is published."""
        try:
            problems: list[SeriatimError] = [*(await self.capture(topic)).values()]
        except SeriatimError as error:
            problems = [error]
        for problem in problems:
            logger.warning("names not added to a bucket: bucket=%s reason=%s", topic, problem)

    # ── slots and stamps ──────────────────────────────────────────────────────────────────────────────────────────

    async def slots(self, topic: Topic) -> str:
        """The stream of a topic's slots: one message per subject, never replaced."""
        stream = self.names.slots_stream(topic)
        return await self._other(stream, f"{self.names.slots_subject(topic)}.>", ONCE)

    async def stamps(self, node: Node) -> str:
        return await self._other(self.names.stamps_stream(node), self.names.stamps_subject(node), {})

    async def order(self) -> str:
        """The stream of the order log."""
        age_s = self.options.order_max_age_s
        age = {"max_age": int(age_s * NANOSECONDS)}
        if age_s:
            age["duplicate_window"] = int(min(age_s, DUPLICATES_S) * NANOSECONDS)
        return await self._other(self.names.order_stream, self.names.order_subject, {}, age)

    async def lives(self) -> str:
        """The stream of registered lives: the last message of each name is kept for ever."""
        return await self._other(self.names.lives_stream, f"{self.names.prefix}.lives.>", LAST_ONLY)

    async def register(self, name: str) -> str:
        """The stream of one record of the cluster."""
        return await self._other(self.names.register_stream(name), self.names.register_subject(name), {"max_age": 0})

    async def logs(self, table: str) -> str:
        return await self._other(self.names.logs_stream(table), self.names.logs_subject(table), {})

    def knows(self, stream: str) -> bool:
        """Whether a stream of slots or stamps is known to be there."""
        return stream in self._others

    async def _other(
        self, stream: str, subject: str, additions: dict[str, Any], if_new: dict[str, Any] | None = None
    ) -> str:
        """A stream with these settings, made if there is none. `if_new`: settings that one which is there may lack."""
        made_with = {**additions, **(if_new or {})}
        if stream not in self._others:
            async with self._locks[stream]:
                found = await self._find(stream)
                if found is None and not await self._create({**self._config(stream, [subject]), **made_with}):
                    found = (await self.api.info(stream)).config
                if found is not None and (problem := _problem_with(found, subject, additions)) is not None:
                    fix = "change it, or delete it with its messages; then it is created again"
                    raise InputError(f"stream {stream}", f"it was made by somebody else and {problem}", fix)
            self._others.add(stream)
        return stream

    async def _find(self, stream: str) -> StreamConfig | None:
        """Look before making one: a client without the right to make streams can use existing ones."""
        try:
            return (await self.api.info(stream)).config
        except StreamNotFound:
            return None

    async def _create(self, config: dict[str, Any]) -> bool:
        """Create a stream. False: somebody else has created it, perhaps with other options, which then apply."""
        try:
            await self.api.create_stream(config)
        except StreamNameInUse:
            return False
        except SubjectsOverlap:
            others = await self.api.streams_with(config["subjects"][0])
            raise InputError(
                f"stream {config['name']}",
                f"its subject {config['subjects'][0]} is captured by {', '.join(others)}",
                f"remove it there: subjects that begin with {self.names.prefix} belong to this cluster",
            ) from None
        return True

    def _log_config(self, stream: str, subjects: Iterable[str]) -> dict[str, Any]:
        config = self._config(stream, subjects)
        duplicates_s = min(self.options.duplicates_s, self.options.max_age_s or self.options.duplicates_s)
        config["duplicate_window"] = int(duplicates_s * NANOSECONDS)
        if self.options.max_bytes is not None:
            config["max_bytes"] = self.options.max_bytes
        return config

    def _config(self, stream: str, subjects: Iterable[str]) -> dict[str, Any]:
        config: dict[str, Any] = {
            "name": stream,
            "subjects": list(subjects),
            "retention": "limits",
            "storage": self.options.storage,
            "num_replicas": self.options.replicas,
            "allow_direct": True,
        }
        if self.options.max_age_s is not None:
            config["max_age"] = int(self.options.max_age_s * NANOSECONDS)
            config["duplicate_window"] = min(config["max_age"], int(DUPLICATES_S * NANOSECONDS))
        return config


def _problem_with(config: StreamConfig, subject: str, needed: dict[str, Any]) -> str | None:
    """Why a stream that somebody else created cannot be used. `needed`: further settings that it must have."""
    if config.subjects != [subject]:
        return f"captures {', '.join(config.subjects) or 'nothing'}, not exactly {subject}"
    if config.retention != "limits":
        return f"has retention {config.retention!r}, so it forgets events when somebody has read them"
    if config.no_ack or config.sealed or config.mirror or config.subject_transform:
        return "acknowledges nothing, is sealed, is a mirror or changes subjects"
    for setting, value in needed.items():
        if getattr(config, setting) != value:
            return f"has {setting} = {getattr(config, setting)!r}, but needs {value!r}"
    return None
