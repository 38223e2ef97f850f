"""What can go wrong, and whose fault it is.

SeriatimError
├── InputError           a value given to us is wrong; names the field and the fix
│   ├── TreeError        the sequencing tree: cycle, two roots, unknown parent, ...
│   ├── UnknownTopic     a topic without a home
│   └── LogError         a delivery log: malformed, truncated, ambiguous
└── RemoteError          the other side broke the protocol; the machine that raised it did not change
"""

from seriatim.model.names import Topic


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
