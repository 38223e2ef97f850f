"""Two ends of a link over a channel that loses, repeats and reorders, with restarts of either end."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from seriatim.protocols.link import RESENT_AT_ONCE, Frame, Link

RETRY_MS = 10.0


class End:
    """One end as a machine keeps it: `sent` and `taken` are in its journal, so they survive a restart."""

    def __init__(self) -> None:
        self.link: Link[str] = Link()
        self.epoch = 1
        self.sent: list[str] = []
        self.taken: list[str] = []

    def send(self, body: str, now: float) -> Frame[str]:
        self.sent.append(body)
        return self.link.send(body, self.epoch, now, RETRY_MS)

    def receive(self, frame: Frame[str]) -> Frame[str] | None:
        body = self.link.receive(frame)
        if body is not None:
            self.taken.append(body)
        return self.link.acknowledgement(self.epoch) if frame.body is not None else None

    def resend(self, now: float) -> list[Frame[str]]:
        return self.link.resend(self.epoch, now, RETRY_MS)

    def restart(self, now: float) -> None:
        """What was acknowledged is not in the journal: everything counts as unacknowledged again."""
        self.epoch += 1
        self.link = Link(received=len(self.taken))
        for body in self.sent:
            self.link.send(body, self.epoch, now, RETRY_MS)


@given(st.integers(0, 2**32 - 1), st.booleans())
def test_everything_arrives_once_and_in_order(seed: int, restarts: bool) -> None:
    random = Random(seed)
    ends = End(), End()
    on_the_way: list[tuple[int, Frame[str]]] = []  # (which end it is for, frame)

    def hand_over(to: int, frames: list[Frame[str]], loss: float, duplication: float) -> None:
        for frame in frames:
            if random.random() >= loss:
                on_the_way.extend([(to, frame)] * (2 if random.random() < duplication else 1))

    now = 0.0
    for _ in range(60):  # the channel does what it likes
        now += 4.0
        side = random.randrange(2)
        if random.random() < 0.6:
            hand_over(1 - side, [ends[side].send(f"{side}:{len(ends[side].sent)}", now)], 0.3, 0.2)
        if restarts and random.random() < 0.1:
            ends[side].restart(now)
        hand_over(1 - side, ends[side].resend(now), 0.3, 0.2)
        for _ in range(random.randrange(4)):
            if on_the_way:
                to, frame = on_the_way.pop(random.randrange(len(on_the_way)))
                answer = ends[to].receive(frame)
                hand_over(1 - to, [answer] if answer is not None else [], 0.3, 0.2)
        for side in (0, 1):
            assert ends[side].taken == ends[1 - side].sent[: len(ends[side].taken)]
    for _ in range(4):  # the channel heals: one repeat is enough, plus the way of the acknowledgement
        now += RETRY_MS
        for side in (0, 1):
            hand_over(1 - side, ends[side].resend(now), 0.0, 0.0)
        while on_the_way:
            to, frame = on_the_way.pop(0)
            answer = ends[to].receive(frame)
            hand_over(1 - to, [answer] if answer is not None else [], 0.0, 0.0)
    for side in (0, 1):
        assert ends[side].taken == ends[1 - side].sent
        assert not ends[side].link.unacknowledged
        assert ends[side].link.resend_due is None


def test_a_frame_of_an_earlier_epoch_is_refused_whatever_it_says() -> None:
    link: Link[str] = Link()
    link.send("x", 1, 0.0, RETRY_MS)
    assert link.receive(Frame(epoch=2, number=1, received=0, body="new")) == "new"
    assert link.receive(Frame(epoch=1, number=2, received=1, body="old")) is None
    assert link.unacknowledged == {1: "x"}, "not even its acknowledgement counts"
    assert link.receive(Frame(epoch=2, number=2, received=1, body="newer")) == "newer"
    assert not link.unacknowledged


def test_a_frame_that_is_not_the_next_one_is_dropped_but_acknowledges() -> None:
    link: Link[str] = Link()
    link.send("x", 1, 0.0, RETRY_MS)
    assert link.receive(Frame(epoch=1, number=2, received=1, body="too early")) is None
    assert not link.unacknowledged
    assert link.received == 0


def test_repeats_wait_for_their_time_and_come_in_bounded_numbers() -> None:
    link: Link[str] = Link()
    for index in range(RESENT_AT_ONCE + 5):
        link.send(f"{index}", 1, 0.0, RETRY_MS)
    assert link.resend(1, RETRY_MS - 1, RETRY_MS) == []
    again = link.resend(1, RETRY_MS, RETRY_MS)
    assert [frame.number for frame in again] == list(range(1, RESENT_AT_ONCE + 1))
    assert link.resend(1, RETRY_MS, RETRY_MS) == []


def test_acknowledging_what_was_never_sent_changes_nothing() -> None:
    link: Link[str] = Link()
    assert link.receive(Frame(epoch=1, number=0, received=99)) is None
    assert link.send("x", 1, 0.0, RETRY_MS).number == 1
    assert link.unacknowledged == {1: "x"}
