"""A home watches the logs of its topics grow. The cost depends on the number of rounds, not of messages.

A topic at rest has an *alarm*: a subscription to its subject that ends with the first message. When it rings, the
server is asked where the log ends. The home is told, and stamps the range. Only then is the question asked again, so
whatever has arrived meanwhile is one range; if the home tells the stamp in stages, its first stage is enough. While a
log keeps growing there is no alarm, just one question per round. When there is nothing new, the alarm is set, and the
question is asked once more, because an event may have come in between.

    rest ──alarm──▶ asking ──grown──▶ told the home ──Stamped, Staged──▶ asking …
      ▲               │ nothing new: set the alarm, ask once more
      └───────────────┘

*Pace.* A topic is asked about at most every `pace_ms`, and all busy topics together at most `QUESTIONS_PER_S` times a
second: with many of them ranges become larger, not questions more frequent. Under load rounds become longer, up to
fifty times `pace_ms`, so that the server keeps its time for messages. This grows with the square of the load: half of
it costs little. A round of one topic costs the home the same wake-ups, journal append and messages as a round of ten.
So under load all busy topics are asked at the same moments.

*Two questions.* Asking for the last message costs the server a quarter of asking for the state of the stream, but sends
the message along and does not say what was trimmed. So it is asked while messages are small, the other one now and
then.

An alarm rings when a message is *published*, which can be a moment before it is in the log. So a question that finds
nothing after an alarm is repeated a few times. A slow round of questions finds messages that were missed. A log that
was deleted and created again is reported and not numbered (identity.py), until it is the old one again or is accepted;
while it grows this is noticed within a second, and at rest when the server reports it.
"""

import asyncio
import heapq
import logging
import math
import time
from collections.abc import Callable

from msgspec import Struct, field
from nats.aio.msg import Msg

from seriatim.brokers.capabilities import AnotherLog
from seriatim.brokers.nats.api import RETRY_S, STREAM_NOT_FOUND, StreamAnswer, decode_info, failure, patiently
from seriatim.brokers.nats.identity import GONE, Sighting, difference
from seriatim.brokers.nats.link import Reply, no_responders
from seriatim.brokers.nats.renewal import renew
from seriatim.brokers.nats.stamps import StampChannel
from seriatim.brokers.nats.streams import Streams
from seriatim.brokers.seam import Deliver, OnError
from seriatim.model import ConnectionFailed, Number, RequestRefused, SeriatimError, Topic
from seriatim.protocols.with_broker import Grown, Renew, Trimmed, Watch

logger = logging.getLogger(__name__)

PACE_MS = 2.0
QUESTIONS_PER_S = 1_000
FULL_LOAD_PER_S = 50_000  # messages a second, over all topics, from which on the pace is slowest
SLOWER_AT_FULL_LOAD = 50.0
FEWER_AT_FULL_LOAD = 0.4
IN_STEP_PER_S = 5_000  # messages a second from which on all topics are asked at the same moments
IN_STEP_WITHIN = 0.25  # of the pace
RATE_WINDOW_S = 0.25
QUIET_S = 0.02  # a topic that was quiet for so long gets its alarm back at once
AFTER_ALARM_S = (0.001, 0.003, 0.01, 0.05)  # when to ask again if an alarm rang and nothing is new
UNSTAMPED_S = 0.5  # the home does not answer: ask anyway
ROUND_S = 1.0
SLOWEST_ROUND_S = 32.0
BROKEN_ROUND_S = 2.0  # how often a log is looked at that is not the one it was
SMALL_BYTES = 4_096  # a last message of this size may come along with the answer
BYTES_PER_S = 4_000_000  # of answers about one topic: a stream with thousands of subjects has long ones


class Watched(Struct):
    """One topic."""

    topic: Topic
    stream: str = ""
    subjects: list[str] = field(default_factory=list)
    alarms: dict[str, Callable[[], None]] = field(default_factory=dict)  # subject → how to switch it off
    told: Number = -1  # the length the home was told; -1: none yet
    known: Sighting = Sighting()  # the log that it is the length of
    first: Number = 1  # the first number that the home was told to be there
    asking: bool = False
    answer_due: bool = False  # the home has asked, and gets an answer even if nothing is new
    rang: int = 0  # questions still to be asked because of an alarm
    waits_for: Number = 0  # the home has not stamped up to here; 0: it has
    grown_at: float = 0.0
    asked_at: float = 0.0
    cheaply: bool = False  # ask for the last message
    state_due: float = 0.0  # when to ask for the state at the latest
    pace_s: float = 0.0
    round_s: float = ROUND_S
    due: float | None = None  # when something happens by itself
    dropped: bool = False  # the topic was removed, or has another home
    broken: str = ""  # why the log is not the one it was: told once, and looked at now and then


class Watcher:
    """The topics that one home watches."""

    def __init__(
        self, streams: Streams, stamps: StampChannel, deliver: Deliver, on_error: OnError, pace_ms: float = PACE_MS
    ) -> None:
        self.questions = 0
        self._streams = streams
        self._stamps = stamps
        self._link = streams.api.link
        self._deliver = deliver
        self._on_error = on_error
        self._pace_s = pace_ms / 1000.0
        self._watched: dict[Topic, Watched] = {}
        self._busy: set[Topic] = set()
        self._agenda: list[tuple[float, Topic]] = []  # a heap; an entry counts if it is the topic's `due`
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._rate_per_s = 0.0  # how fast all logs grow together
        self._counted, self._counted_since = 0, time.monotonic()
        self._tasks: set[asyncio.Task[None]] = set()
        self._renewing: set[Topic] = set()
        self._closed = False
        self._link.on_up.append(self._on_up)
        self._link.on_down.append(self._on_down)
        streams.hear_of_deleted(self._on_deleted)
        if streams.names.buckets:
            self._link.listen(streams.members.changes("*"), self._on_changed)

    def close(self) -> None:
        self._closed = True
        self._link.on_up.remove(self._on_up)
        self._link.on_down.remove(self._on_down)
        self._streams.hear_no_more(self._on_deleted)
        if self._timer is not None:
            self._timer.cancel()
        for each in self._watched.values():
            for switch_off in each.alarms.values():
                switch_off()
        for task in self._tasks:
            task.cancel()

    def watch(self, topic: Topic, issued: Number = 0) -> None:
        """Report the length now, and growth later. A second call reports the length again.

        `issued`: it is known to have been so long, also if its stamps are on other channels.
        """
        each = self._watched.get(topic)
        if each is None:
            each = self._watched[topic] = Watched(topic)
        if issued:
            each.told = max(each.told, issued)
        each.answer_due, each.broken = True, ""
        each.state_due = 0.0
        if not each.stream:
            self._begin(each)
        else:
            self._ask(each)

    def renew(self, message: Renew) -> None:
        """The log of a topic is another one, and that is accepted. Tried once; the home asks again."""
        if message.topic not in self._renewing:
            self._renewing.add(message.topic)
            task = asyncio.get_running_loop().create_task(self._renew(message))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _renew(self, message: Renew) -> None:
        topic = message.topic
        each = self._watched.setdefault(topic, Watched(topic))
        try:
            await self._stamps.look_up(topic)
            stream = each.stream or self._streams.known_log(topic) or self._streams.names.log_stream(topic)
            logs = [each.known, self._stamps.log_of(topic), *await self._stamps.all_logs(topic)]
            known = [log.created for log in logs]
            renewed = await renew(message, self._streams, stream, known)
        except ConnectionFailed:
            return  # asked again
        except SeriatimError as error:
            self._on_error(message, error)
            return
        finally:
            self._renewing.discard(topic)
        each.told, each.known, each.broken, each.stream = message.first - 1, Sighting(), "", ""
        self._deliver(renewed)
        self.watch(topic)

    def stamped(self, topic: Topic, last: Number) -> None:
        """The home has stamped up to `last`, or told the first stage of that stamp."""
        each = self._watched.get(topic)
        if each is not None and each.waits_for and last >= each.waits_for:
            self._go_on(each)

    def forget(self, topic: Topic) -> None:
        """Watch no longer: the topic is removed, or has another home."""
        each = self._watched.pop(topic, None)
        if each is not None:
            each.dropped, each.due = True, None
            self._silence(each)

    def _begin(self, each: Watched) -> None:
        if not each.asking:
            each.asking = True
            task = asyncio.get_running_loop().create_task(self._find_stream(each))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _find_stream(self, each: Watched) -> None:
        """Find or create the log, and how far it was stamped, which tells it from another log of the same name."""
        try:
            stream = await patiently(lambda: self._streams.log(each.topic))
            stamped_to = await patiently(lambda: self._stamps.look_up(each.topic))
            log = self._stamps.log_of(each.topic)
            if 0 < each.told >= stamped_to:  # it has moved here, and may have got another log since it was here before
                log = next(iter(reversed(await patiently(lambda: self._stamps.all_logs(each.topic)))), log)
        except SeriatimError as error:
            each.asking = False
            self._refuse(each, error)
            return
        each.stream, each.asking = stream, False
        each.told = max(each.told, stamped_to)
        if not each.known.created:
            each.known = log
        self._ask(each)

    # ── asking ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _ask(self, each: Watched) -> None:
        """Ask now. The answer decides what is next."""
        if self._closed or each.asking or each.dropped:
            return
        now = time.monotonic()
        each.due = None
        each.asking = True
        each.asked_at = now
        self.questions += 1
        prefix = self._streams.api.prefix
        if each.cheaply and now < each.state_due:
            question = b'{"last_by_subj":">"}'
            self._link.ask(f"{prefix}.DIRECT.GET.{each.stream}", question, lambda reply: self._on_last(each, reply))
        else:
            self._link.ask(f"{prefix}.STREAM.INFO.{each.stream}", b"", lambda reply: self._on_state(each, reply))

    def _ask_soon(self, each: Watched, after_s: float = 0.0) -> None:
        """Ask as soon as the pace of the topic allows it."""
        if each.asking or self._closed:
            return
        self._busy.add(each.topic)
        load = min(1.0, self._rate_per_s / FULL_LOAD_PER_S)
        questions_per_s = QUESTIONS_PER_S * (1.0 - load * (1.0 - FEWER_AT_FULL_LOAD))
        slowest_s = self._pace_s * (1.0 + load * load * (SLOWER_AT_FULL_LOAD - 1.0))
        pace_s = max(slowest_s, len(self._busy) / questions_per_s)
        now = time.monotonic()
        after_s = max(after_s, each.asked_at + max(pace_s, each.pace_s) - now)
        if self._rate_per_s > IN_STEP_PER_S:
            after_s = _next_moment(now + max(0.0, after_s), pace_s) - now
        if after_s > 0:
            self._plan(each, after_s)
        else:
            self._ask(each)

    def _on_last(self, each: Watched, reply: Reply) -> None:
        """The last message came; its header says where it is."""
        if reply is None or isinstance(reply, RequestRefused):
            self._on_state(each, reply)
            return
        each.asking = False
        if self._closed or each.dropped:
            return
        position = (reply.headers or {}).get("Nats-Sequence", "")
        if len(reply.data) > SMALL_BYTES or no_responders(reply):
            each.cheaply = False
        # No position: the log is empty, or cannot be asked like this. A lower one: from a replica that lags behind.
        self._on_length(each, max(int(position), each.told) if position.isdigit() else each.told)

    def _on_state(self, each: Watched, reply: Reply) -> None:
        each.asking = False
        if self._closed or each.dropped:
            return
        if reply is None:
            if self._link.is_up:  # no answer in time; without a connection everything starts over when there is one
                self._ask_soon(each, RETRY_S)
        elif isinstance(reply, RequestRefused):
            self._refuse(each, reply)
        elif no_responders(reply):
            self._refuse(each, RequestRefused("JetStream does not answer on this NATS server; start it with -js"))
        else:
            each.pace_s = len(reply.data) / BYTES_PER_S
            answer = decode_info(reply.data)
            if answer.error is None:
                self._take_state(each, answer)
            elif answer.error.err_code == STREAM_NOT_FOUND and each.told <= 0:
                self._streams.forget(each.topic)
                each.stream = ""
                self._begin(each)
            elif answer.error.err_code == STREAM_NOT_FOUND:
                self._break(each, AnotherLog(f"the log of {each.topic} (stream {each.stream}) {GONE}"))
            elif isinstance(problem := failure(f"the log of {each.topic}", answer.error), ConnectionFailed):
                self._ask_soon(each, RETRY_S)
            else:
                self._break(each, AnotherLog(str(problem)))

    def _take_state(self, each: Watched, answer: StreamAnswer) -> None:
        config, state = answer.config, answer.state
        if self._streams.names.buckets:
            self._look_for_lost_names(each, config.subjects)
        each.subjects = sorted(self._streams.members.of(config.subjects))
        each.cheaply = config.allow_direct and state.bytes <= SMALL_BYTES * state.messages
        each.state_due = time.monotonic() + ROUND_S
        if (problem := difference(answer, max(0, each.told), each.known)) is not None:
            what = f"the log of {each.topic} (stream {each.stream}) {problem}"
            self._break(each, AnotherLog(what, state.messages))
            return
        if each.broken:
            logger.info("log is the original one again: topic=%s stream=%s", each.topic, each.stream)
            each.broken, each.answer_due = "", True
        each.known = Sighting(answer.created, state.last_ts)
        self._stamps.name_log(each.topic, each.known)
        if state.first > each.first:
            each.first = state.first
            self._deliver(Trimmed(each.topic, state.first))
        self._on_length(each, state.last_seq)

    def _on_length(self, each: Watched, last: Number) -> None:
        grown, due = last > each.told, each.answer_due
        if grown and each.told >= 0:
            self._count(last - each.told)
        each.told, each.answer_due = last, False
        if grown:  # before the home is told: it may stamp at once
            each.rang, each.waits_for, each.round_s = 0, last, ROUND_S
            each.grown_at = time.monotonic()
            self._busy.add(each.topic)
            self._plan(each, UNSTAMPED_S)
        if grown or due:
            self._deliver(Grown(each.topic, last))
        if grown:
            return
        if each.rang:
            each.rang -= 1
            self._ask_soon(each, AFTER_ALARM_S[-1 - each.rang])
        elif self._set_alarms(each):
            self._ask(each)
        else:
            self._rest(each)

    def _count(self, messages: int) -> None:
        self._counted += messages
        window_s = time.monotonic() - self._counted_since
        if window_s > RATE_WINDOW_S:
            before = 0.5 ** (window_s / RATE_WINDOW_S)  # after a long silence nothing of what was counts
            self._rate_per_s = self._rate_per_s * before + self._counted / window_s * (1.0 - before)
            self._counted, self._counted_since = 0, self._counted_since + window_s

    def _go_on(self, each: Watched) -> None:
        """The home is ready for more. If its alarms are set and silent, there is nothing to ask."""
        each.waits_for = 0
        if each.rang or len(each.alarms) < len(each.subjects):
            each.due = None
            self._ask_soon(each)
        else:
            self._rest(each)

    def _rest(self, each: Watched) -> None:
        self._busy.discard(each.topic)
        each.due = None
        self._plan(each, each.round_s)

    # ── alarms ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _set_alarms(self, each: Watched) -> bool:
        """Set the alarms that are not set. True: there were some."""
        missing = [subject for subject in each.subjects if subject not in each.alarms]
        for subject in missing:
            each.alarms[subject] = self._link.once(subject, lambda message, s=subject: self._on_alarm(each, s))  # type: ignore[misc]
        return bool(missing)

    def _on_alarm(self, each: Watched, subject: str) -> None:
        each.alarms.pop(subject, None)
        if self._closed or each.broken:
            return
        each.rang = len(AFTER_ALARM_S)
        if each.waits_for:
            return  # asked when the home is ready
        if time.monotonic() - each.grown_at > QUIET_S:
            self._set_alarms(each)  # it comes in drops: then one question each is enough
        self._ask_soon(each)

    def _on_deleted(self, stream: str) -> None:
        for each in self._watched.values():
            if each.stream == stream:
                each.state_due = 0.0
                self._ask_soon(each)

    def _on_changed(self, message: Msg) -> None:
        """Called when somebody has added a name to a bucket."""
        each = self._watched.get(message.subject.rpartition(".")[2])
        if each is not None and each.stream:
            each.state_due = 0.0
            self._ask_soon(each)

    def _look_for_lost_names(self, each: Watched, subjects: list[str]) -> None:
        """Called when somebody has replaced the configuration of a bucket's stream by an older one: adds the names
        again."""
        lost = set(each.subjects).difference(subjects)
        for subject in lost:
            self._streams.want(each.topic, subject)
        if lost:
            logger.warning("names lost from a bucket are added again: bucket=%s names=%s", each.topic, sorted(lost))
            self._streams.in_background(self._streams.prepare(each.topic))

    # ── what happens by itself ────────────────────────────────────────────────────────────────────────────────────

    def _plan(self, each: Watched, after_s: float) -> None:
        """Plan the next action of a topic, unless an earlier one is planned."""
        due = time.monotonic() + after_s
        if each.due is not None and each.due <= due:
            return
        each.due = due
        heapq.heappush(self._agenda, (due, each.topic))
        self._set_timer()

    def _set_timer(self) -> None:
        if not self._agenda or self._closed:
            return
        due = self._agenda[0][0]
        if self._timer is not None:
            if self._timer_at <= due:
                return
            self._timer.cancel()
        self._timer_at = due
        self._timer = asyncio.get_running_loop().call_later(max(0.0, due - time.monotonic()), self._on_timer)

    def _on_timer(self) -> None:
        """Do everything that is due about now, so that questions are sent together."""
        self._timer = None
        until = time.monotonic() + self._pace_s / 2
        while self._agenda and self._agenda[0][0] <= until:
            due, topic = heapq.heappop(self._agenda)
            each = self._watched.get(topic)
            if each is None or each.due != due:
                continue
            each.due = None
            if each.topic not in self._busy:  # the slow round
                each.round_s = min(2 * each.round_s, SLOWEST_ROUND_S)
                each.state_due = 0.0
            each.waits_for = 0
            self._ask(each)
        self._set_timer()

    def _on_down(self) -> None:
        for each in self._watched.values():
            each.alarms.clear()

    def _on_up(self) -> None:
        for each in self._watched.values():
            each.waits_for, each.round_s, each.state_due = 0, ROUND_S, 0.0
            if each.stream:
                self._ask(each)

    def _break(self, each: Watched, error: AnotherLog) -> None:
        """Number no more of it, but look again: it may be restored.

        Without the alarms, because a publisher hears that its stream is gone only if nobody listens.
        """
        what = f"{error} ({error.events})"
        is_new, each.broken = what != each.broken, what
        self._silence(each)
        each.rang, each.state_due = 0, 0.0
        self._plan(each, BROKEN_ROUND_S)
        if is_new:
            self._refuse(each, error)

    def _silence(self, each: Watched) -> None:
        for switch_off in each.alarms.values():
            switch_off()
        each.alarms.clear()
        self._busy.discard(each.topic)

    def _refuse(self, each: Watched, error: SeriatimError) -> None:
        self._on_error(Watch(frozenset({each.topic})), error)


def _next_moment(at_s: float, pace_s: float) -> float:
    """The next common moment for topics of this pace, from `at_s` on. A topic that is a little early joins the others.

    Whole milliseconds, so that most changes of the load do not move the moments.
    """
    step_s = max(1.0, round(pace_s * 1000.0)) / 1000.0
    return math.ceil(at_s / step_s - IN_STEP_WITHIN) * step_s
