"""The errors of Seriatim, and whose fault each is.

SeriatimError
├── InputError           a value given to us is wrong; names the field and the fix
│   ├── TreeError        the sequencing tree: cycle, two roots, unknown parent, ...
│   ├── UnknownTopic     a topic without a home
│   └── LogError         a delivery log: malformed, truncated, ambiguous
├── RemoteError          the other side broke the protocol; the machine that raised it did not change
├── ConnectionFailed     no broker or sequencer answers at the address; says what was tried
├── RequestRefused       a sequencer or the broker said no, and why; nothing was changed
├── QueueFull            too many events wait to be published; publish more slowly, or await `publish`
├── TimedOut             a bounded wait is over; says what was waited for
├── Unsettled            a peer was presumed dead while it published: all the others have the event, or none has
├── GapError             numbers of a topic will never come, and the gap policy says to raise
├── JournalError         the journal cannot be written or read: disk full, damaged, held by another process
│   ├── Fenced           another process has taken over: this one must stop
│   ├── Taken            another process, which answers, runs this node or has this durable subscription
│   ├── Behind           the journal is older than what others have seen of it, or belongs to another life
│   └── Unreachable      the server of the journal does not answer; it may answer later
└── Closed               used after it was closed
"""

import msgspec

from seriatim.model.names import Topic

# What msgspec's decoders raise about bytes that somebody else has written: wrong types, text that is not UTF-8, and a
# nesting so deep that reading it would need too much stack. Whoever decodes such bytes must expect all three.
UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class SeriatimError(Exception):
    """Base of every error this package raises on purpose."""


class InputError(SeriatimError, ValueError):
    """A value is wrong. `field` says which one, `fix` says what to do about it."""

    def __init__(self, field: str, problem: str, fix: str) -> None:
        super().__init__(f"{field}: {problem}; {fix}")
        self.field = field
        self.problem = problem
        self.fix = fix


class TreeError(InputError):
    """The sequencing tree cannot be used as given."""


class UnknownTopic(InputError):
    """A topic that no node is home to."""

    def __init__(self, topic: Topic) -> None:
        super().__init__(f"topic {topic!r}", "no node is home to it", "add it to the tree's homes or set default_home")
        self.topic = topic


class LogError(InputError):
    """A delivery log that cannot be read as one."""


class RemoteError(SeriatimError):
    """The other side sent something the protocol does not allow."""


class ConnectionFailed(SeriatimError, ConnectionError):
    """No broker or sequencer answers at the address."""


class RequestRefused(SeriatimError):
    """A sequencer or the broker said no. Nothing was changed."""


class QueueFull(SeriatimError):
    """Too many events wait to be published."""


class TimedOut(SeriatimError, TimeoutError):
    """A bounded wait is over."""


class Unsettled(SeriatimError):
    """A peer was presumed dead before everybody had received its event: all the others have it, or none has."""


class GapError(SeriatimError):
    """Numbers `first` … `last` of a topic will never come."""

    def __init__(self, topic: Topic, first: int, last: int, reason: str) -> None:
        super().__init__(f"{topic} {first}…{last} will never come: {reason}")
        self.topic, self.first, self.last, self.reason = topic, first, last, reason


class JournalError(SeriatimError):
    """The journal cannot be written or read. A process that needs it must stop before it acts."""


class Fenced(JournalError):
    """Another process has taken over."""


class Taken(JournalError):
    """Another process, which answers, runs what this one was to run. Nothing was changed."""


class Behind(JournalError):
    """The journal is older than what others have seen, or belongs to another life. Its message must not be used."""


class Unreachable(JournalError):
    """The server that keeps the journal does not answer. The last append may or may not be in the journal."""


class Closed(SeriatimError):
    """Used after it was closed."""
