"""Tiny protocols, right and wrong, on which the explorer itself is tested."""

from collections.abc import Sequence
from typing import Any

from msgspec import Struct, field

from seriatim.lab.explore.engine.checks import Checks, Stopped, Violation, first_duplicate, first_inversion
from seriatim.lab.explore.engine.world import Budget, Channel, Role, World
from seriatim.model import APPLICATION, Address
from seriatim.protocols.machine import Effects, Payload

# ── a broadcast: everybody must see the same order ────────────────────────────────────────────────────────────────


class Say(Struct, frozen=True, tag=True):
    text: str


class Said(Struct, frozen=True, tag=True):
    text: str
    number: int = 0


def said(log: Sequence[Payload]) -> list[Said]:
    return [each for each in log if isinstance(each, Said)]


class SpeakerState(Struct):
    spoken: int = 0


class Speaker:
    """Sends what it is told to say to `targets`: right if that is one sequencer, wrong if it is every listener."""

    def __init__(self, targets: Sequence[Address], state: SpeakerState | None = None) -> None:
        self.targets = targets
        self.state = state or SpeakerState()

    def step(self, source: Address, message: Payload, now: float) -> Effects:
        assert isinstance(message, Say), message
        effects = Effects()
        self.state.spoken += 1
        effects.send = [(target, Said(message.text)) for target in self.targets]
        return effects

    def tick(self, now: float) -> Effects:
        return Effects()


class RelayState(Struct):
    numbers: dict[str, int] = field(default_factory=dict)


class Relay:
    """Numbers what it hears and passes it on. `forgets`: its journal misses every second record."""

    def __init__(self, targets: Sequence[Address], forgets: bool = False, state: RelayState | None = None) -> None:
        self.targets = targets
        self.forgets = forgets
        self.state = state or RelayState()

    @classmethod
    def restore(cls, targets: Sequence[Address], forgets: bool, journal: Sequence[Payload]) -> "Relay":
        return cls(targets, forgets, RelayState({record.text: record.number for record in said(journal)}))

    def step(self, source: Address, message: Payload, now: float) -> Effects:
        assert isinstance(message, Said), message
        effects = Effects()
        number = self.state.numbers[message.text] = len(self.state.numbers) + 1
        numbered = Said(message.text, number)
        if not (self.forgets and number % 2):
            effects.persist.append(numbered)
        effects.send = [(target, numbered) for target in self.targets]
        return effects

    def tick(self, now: float) -> Effects:
        """Say everything again: only a restart ticks this machine, and what it said last may not have been heard."""
        effects = Effects()
        numbered = [Said(text, number) for text, number in sorted(self.state.numbers.items(), key=lambda item: item[1])]
        effects.send = [(target, said) for said in numbered for target in self.targets]
        return effects


class ListenerState(Struct):
    done: int = 0
    held: dict[int, str] = field(default_factory=dict)


class Listener:
    """Notifies at once, or with `in_order` by number."""

    def __init__(self, in_order: bool = False, state: ListenerState | None = None) -> None:
        self.in_order = in_order
        self.state = state or ListenerState()

    def step(self, source: Address, message: Payload, now: float) -> Effects:
        assert isinstance(message, Said), message
        effects = Effects()
        if not self.in_order:
            effects.notify.append(message)
            return effects
        if message.number > self.state.done:
            self.state.held[message.number] = message.text
        while (text := self.state.held.pop(self.state.done + 1, None)) is not None:
            self.state.done += 1
            effects.notify.append(Said(text, self.state.done))
        return effects

    def tick(self, now: float) -> Effects:
        return Effects()


class SameOrder(Checks):
    """Same order, no duplicates, and everything said is heard by every listener."""

    def __init__(self, expected: int) -> None:
        self.expected = expected

    def log(self, address: Address, log: Sequence[Payload]) -> Violation | None:
        text = first_duplicate([each.text for each in said(log)])
        return None if text is None else Violation("duplicate", f"{address} heard {text} twice")

    def pair(
        self, one: Address, log: Sequence[Payload], other: Address, other_log: Sequence[Payload]
    ) -> Violation | None:
        pair = first_inversion([each.text for each in said(log)], [each.text for each in said(other_log)])
        if pair is None:
            return None
        return Violation("inversion", f"{one} heard {pair[0]} before {pair[1]}, {other} {pair[1]} before {pair[0]}")

    def stopped(self, world: Stopped) -> list[Violation]:
        listeners = [address for address in world.addresses if isinstance(world.machine(address), Listener)]
        short = [address for address in listeners if len(world.log(address)) < self.expected]
        return [
            Violation("stuck", f"{address} heard {len(world.log(address))} of {self.expected}") for address in short
        ]


def broadcast(
    speakers: int = 2,
    listeners: int = 2,
    words: int = 1,
    ordered: bool = True,
    in_order: bool = True,
    bag: bool = False,
    precise: bool = True,
    crashes: int = 0,
    losses: int = 0,
    forgets: bool = False,
) -> World:
    """A broadcast world; `precise`: with the influence relation that lets persistent sets work."""
    ears = [f"l{i}" for i in range(listeners)]
    mouths = [f"s{i}" for i in range(speakers)]
    targets = ["relay"] if ordered else ears
    speaker = Role(lambda: Speaker(targets), lambda state: Speaker(targets, state))
    listener = Role(lambda: Listener(in_order), lambda state: Listener(in_order, state))
    roles = dict.fromkeys(mouths, speaker) | dict.fromkeys(ears, listener)
    budgets = {ear: Budget(losses=losses) for ear in ears}
    if ordered:
        roles["relay"] = Role(
            lambda: Relay(ears, forgets),
            lambda state: Relay(ears, forgets, state),
            lambda journal: Relay.restore(ears, forgets, journal),
        )
        budgets["relay"] = Budget(crashes=crashes)

    def influence(target: Address, source: Address) -> frozenset[Address] | None:
        if not precise:
            return None
        return frozenset(targets if target in mouths else ears if target == "relay" else ())

    return World(
        name="broadcast",
        roles=roles,
        checks=SameOrder(speakers * words),
        scripts={mouth: [Say(f"{mouth}.{i}") for i in range(words)] for mouth in mouths},
        budgets=budgets,
        lane=lambda source, target, payload: str(payload) if bag and source == "relay" else "",
        influence=influence,
        passive=lambda machine: isinstance(machine, Listener),
    )


# ── a lock: nobody waits forever, and no token is given twice ────────────────────────────────────────────────────


class Acquire(Struct, frozen=True, tag=True):
    pass


class Release(Struct, frozen=True, tag=True):
    pass


class Held(Struct, frozen=True, tag=True):
    token: int


class LockState(Struct):
    holder: Address | None = None
    token: int = 0
    queue: list[Address] = field(default_factory=list)


class LockServer:
    """`bug`: "forgets" drops who must wait; "stutters" gives the same token to the next in line."""

    def __init__(self, bug: str = "", state: LockState | None = None) -> None:
        self.bug = bug
        self.state = state or LockState()

    def step(self, source: Address, message: Payload, now: float) -> Effects:
        effects = Effects()
        state = self.state
        if isinstance(message, Acquire):
            if state.holder is None or self.bug != "forgets":
                state.queue.append(source)
        else:
            state.holder = None
        if state.holder is None and state.queue:
            state.holder = state.queue.pop(0)
            if not (self.bug == "stutters" and isinstance(message, Release)):
                state.token += 1
            effects.send.append((state.holder, Held(state.token)))
        return effects

    def tick(self, now: float) -> Effects:
        return Effects()


class ClientState(Struct):
    pass


class LockClient:
    """Passes commands on and tells what it holds."""

    def __init__(self, state: ClientState | None = None) -> None:
        self.state = state or ClientState()

    def step(self, source: Address, message: Payload, now: float) -> Effects:
        effects = Effects()
        if source == APPLICATION:
            effects.send.append(("server", message))
        else:
            effects.notify.append(message)
        return effects

    def tick(self, now: float) -> Effects:
        return Effects()


def held(log: Sequence[Payload]) -> set[int]:
    return {each.token for each in log if isinstance(each, Held)}


class OneHolder(Checks):
    def pair(
        self, one: Address, log: Sequence[Payload], other: Address, other_log: Sequence[Payload]
    ) -> Violation | None:
        shared = held(log) & held(other_log)
        return Violation("shared", f"{one} and {other} both hold token {min(shared)}") if shared else None

    def stopped(self, world: Stopped) -> list[Violation]:
        return [
            Violation("stuck", f"{address} waits for the lock for ever")
            for address in world.addresses
            if world.waiting(address)
        ]


def lock(clients: int = 2, bug: str = "", rounds: int = 1) -> World:
    client = Role(LockClient, LockClient)
    names = [f"c{i}" for i in range(clients)]
    return World(
        name="lock",
        roles={"server": Role(lambda: LockServer(bug), lambda state: LockServer(bug, state))}
        | dict.fromkeys(names, client),
        checks=OneHolder(),
        scripts={name: [Acquire(), Release()] * rounds for name in names},
        one_at_a_time=frozenset(names),
        answers=lambda command: int(isinstance(command, Acquire)),
        is_answer=lambda payload: isinstance(payload, Held),
        influence=_lock_influence,
    )


def _lock_influence(target: Address, source: Address) -> frozenset[Address] | None:
    if target == "server":
        return None
    return frozenset({"server"} if source == APPLICATION else ())


# ── a retry: a lost request is repeated when time passes ──────────────────────────────────────────────────────────


class RetryState(Struct):
    open: bool = False


class Retrier:
    """Asks until it is answered."""

    def __init__(self, state: RetryState | None = None) -> None:
        self.state = state or RetryState()

    def step(self, source: Address, message: Payload, now: float) -> Effects:
        effects = Effects()
        if source == APPLICATION:
            self.state.open = True
            return self.tick(now)
        if self.state.open:  # a second answer is dropped
            self.state.open = False
            effects.notify.append(message)
        return effects

    def tick(self, now: float) -> Effects:
        effects = Effects()
        if self.state.open:
            effects.send.append(("server", Acquire()))
            effects.wake_at = now + 10
        return effects


def retry(losses: int = 1, ticks: int = 1, patience: int = 5) -> World:
    return World(
        name="retry",
        roles={"c0": Role(Retrier, Retrier), "server": Role(Echo, Echo)},
        checks=OneHolder(),
        scripts={"c0": [Acquire()]},
        budgets={"c0": Budget(ticks=ticks, losses=losses), "server": Budget(losses=losses)},
        may_lose=lambda channel, message: channel == Channel("c0", "server"),
        answers=lambda command: 1,
        is_answer=lambda payload: True,
        patience=patience,
    )


class Echo:
    """Answers everything with a token."""

    def __init__(self, state: Any = None) -> None:
        self.state = state or ClientState()

    def step(self, source: Address, message: Payload, now: float) -> Effects:
        effects = Effects()
        effects.send.append((source, Held(1)))
        return effects

    def tick(self, now: float) -> Effects:
        return Effects()


def ping_pong() -> World:
    """Two machines that answer each other for ever."""
    return World(
        name="ping-pong",
        roles={"c0": Role(Ball, Ball), "c1": Role(Ball, Ball)},
        checks=Checks(),
        scripts={"c0": [Acquire()]},
    )


class Ball(Echo):
    def step(self, source: Address, message: Payload, now: float) -> Effects:
        effects = Effects()
        effects.send.append(("c0" if source == "c1" else "c1", message))
        return effects
