"""What subscribers tell the homes of their topics that they wait for."""

from seriatim.live.tree.waiters import SILENT, WAITERS_MAX, Waiters
from seriatim.protocols.tree.messages import Inquire


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def test_who_waits_is_named_with_what_it_waits_for_and_since_when() -> None:
    clock = Clock()
    waiters = Waiters(2_000.0, clock)
    waiters.heard("audit", Inquire("orders", 7, held=3))
    waiters.heard("billing", Inquire("orders", 8, held=1, waits_for=("prices", 4)))
    waiters.heard("shop", Inquire("orders", 9))  # a publisher, which holds nothing
    clock.now_s += 2.0
    waiters.heard("audit", Inquire("orders", 7, held=1_003))
    assert waiters.lines() == [
        "audit has waited for orders 7 for 4.0 s, with 1,003 events behind it",
        "billing has held orders 8 back for 4.0 s: it waits for prices 4",
    ]
    assert (waiters.count, waiters.oldest_s) == (2, 4.0)
    waiters.heard("audit", Inquire("orders", 9, held=1))
    assert "audit has waited for orders 9 for 2.0 s" in waiters.lines()[0], "it has gone on, and waits for another one"


def test_who_is_silent_is_forgotten_and_the_table_is_bounded() -> None:
    clock = Clock()
    waiters = Waiters(2_000.0, clock)
    waiters.heard("audit", Inquire("orders", 7, held=3))
    clock.now_s += 2.0 * SILENT - 1.0
    waiters.heard("billing", Inquire("orders", 7, held=3))
    assert waiters.count == 2
    clock.now_s += 2.0
    assert [line.split()[0] for line in waiters.lines()] == ["billing"]
    for number in range(WAITERS_MAX + 10):
        waiters.heard(f"s{number}", Inquire("orders", 7, held=1))
    assert waiters.count == WAITERS_MAX
