"""What a client waits for and why, as data and in sentences."""

from msgspec import Struct, field

from seriatim.protocols.tree import Waiting


class HeldEvent(Struct, frozen=True):
    """One event that a subscription holds back: what it waits for, how long it has waited, and which node knows
    more."""

    subscriber: str
    waiting: Waiting
    seconds: float

    @property
    def sentence(self) -> str:
        """Which event is held, since when and why, as a sentence."""
        waiting = self.waiting
        return (
            f"{self.subscriber}: {waiting.topic} {waiting.number} is held since {self.seconds:.1f} s: "
            f"{waiting.why} (node {waiting.home} knows)"
        )


class Explanation(Struct, frozen=True):
    """The held events, the unpublished events, the connections that are down, and other notes."""

    held: list[HeldEvent] = field(default_factory=list)
    unpublished: list[str] = field(default_factory=list)
    down: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def sentences(self) -> list[str]:
        """Everything in words; empty if nothing waits."""
        return [*self.down, *self.notes, *self.unpublished, *(held.sentence for held in self.held)]

    def __bool__(self) -> bool:
        return bool(self.held or self.unpublished or self.down or self.notes)

    def __str__(self) -> str:
        return "\n".join(self.sentences) or "nothing waits"
