"""The driver keeps the order of obligation: nothing leaves before its records are durable, and nothing overtakes."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import astuple

from seriatim.model import Address, Closed, Fenced, InputError, JournalError, RemoteError, TimedOut
from seriatim.protocols.machine import Effects
from seriatim.runtime import Clock, Driver
from seriatim.runtime.driver import MISTAKES
from tests.runtime.toys import Add, Fail, GatedJournal, Said, Toy, turns
from tests.waiting import a_moment, until


class Rig:
    """A driver with a toy, and everything that left it, in order."""

    def __init__(
        self, journal: GatedJournal | None = None, snapshot_bytes_min: int = 1 << 30, snapshots: bool = True
    ) -> None:
        self.toy = Toy()
        self.journal = journal
        self.out: list[Any] = []
        self.on_send: Callable[[Address, Any], None] = lambda target, message: None
        self.driver = Driver(
            "toy",
            self.toy,
            Clock(),
            send=self._send,
            notify=self._notify,
            journal=journal,
            encode_state=self.toy.encode if snapshots else None,
            snapshot_bytes_min=snapshot_bytes_min,
        )
        self.driver.start()

    def _send(self, source: Address, target: Address, message: Any) -> None:
        assert source == "toy"
        if self.journal is not None:
            assert self.journal.durable >= message.persisted, "it left before its records were durable"
        self.out.append((target, *astuple(message)))
        self.on_send(target, message)

    def _notify(self, notifications: Sequence[Any]) -> None:
        for each in notifications:
            if self.journal is not None:
                assert self.journal.durable >= each.persisted, "it was notified before its records were durable"
            self.out.append(("app", *astuple(each)))

    def add(self, amount: int = 1, **more: Any) -> None:
        self.driver.deliver("s", Add(amount, **more))


# ── order of obligation ───────────────────────────────────────────────────────────────────────────────────────────


async def test_nothing_leaves_before_its_records_are_durable() -> None:
    journal = GatedJournal()
    rig = Rig(journal)
    rig.add(1, notes=1)
    await turns()
    assert rig.out == [] and rig.driver.backlog == 1
    journal.let()
    await turns()
    assert rig.out == [("t", 1, 1), ("app", 1, 1)] and rig.driver.backlog == 0
    await rig.driver.stop()


async def test_steps_during_an_append_share_the_next_one() -> None:
    journal = GatedJournal()
    rig = Rig(journal)
    rig.add()
    rig.add(records=2)
    await turns()
    for _ in range(5):
        rig.add()
        await turns(1)
    assert journal.appends == [3]
    journal.let()
    await turns()
    assert journal.appends == [3, 5] and len(rig.out) == 2 and rig.driver.backlog == 5
    journal.let()
    await turns()
    assert len(rig.out) == 7
    assert rig.driver.appends == 2 and rig.driver.steps == 7
    await rig.driver.stop()


async def test_a_step_without_records_waits_only_behind_others() -> None:
    journal = GatedJournal()
    rig = Rig(journal)
    rig.add(0, records=0)
    assert rig.out == [("t", 0, 0)], "nothing to wait for"
    rig.add(1, targets=("a", "b"), notes=2)
    rig.add(0, records=0, targets=("c",))
    await turns()
    rig.add(0, records=0, targets=("d",))
    assert len(rig.out) == 1
    journal.let()
    await turns()
    assert [target for target, *_ in rig.out[1:]] == ["a", "b", "app", "app", "c", "d"]
    assert journal.appends == [1]
    await rig.driver.stop()


async def test_a_step_that_tells_nobody_goes_with_the_next_append(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seriatim.runtime.driver.UNTOLD_S", 3600.0)
    journal = GatedJournal()
    rig = Rig(journal)
    rig.add(1, targets=())
    await turns()
    assert journal.appends == [] and rig.driver.backlog == 1, "nobody waits for it"
    rig.add(0, records=0)
    await turns()
    assert journal.appends == [1] and rig.out == [], "what is told afterwards waits for it"
    journal.let()
    await turns()
    assert rig.out == [("t", 1, 1)]
    rig.add(1, targets=())
    settled = asyncio.ensure_future(rig.driver.settled())
    await turns()
    journal.let()
    await settled
    assert journal.appends == [1, 1], "whoever asks gets it written at once"
    await rig.driver.stop()


async def test_a_step_that_tells_nobody_is_written_after_a_moment() -> None:
    journal = GatedJournal()
    rig = Rig(journal)
    rig.add(1, targets=())
    await until(lambda: journal.appends, "the step is written")
    journal.let()
    await turns()
    assert journal.appends == [1] and rig.driver.backlog == 0
    await rig.driver.stop()


async def test_without_a_journal_effects_leave_at_once() -> None:
    rig = Rig()
    rig.add(notes=1)
    assert rig.out == [("t", 1, 1), ("app", 1, 1)]
    await rig.driver.settled()
    await rig.driver.stop()


@pytest.mark.parametrize("records", [0, 1])
@pytest.mark.parametrize("with_journal", [True, False])
async def test_who_is_told_something_may_step_again(with_journal: bool, records: int) -> None:
    """What that causes comes behind what is just leaving, never in the middle of it."""
    journal = GatedJournal(gated=False) if with_journal else None
    rig = Rig(journal)

    def again(target: Address, message: Any) -> None:
        if target == "a":
            rig.add(records=records, targets=("later",))
        if target == "later" and len(rig.out) < 20:
            rig.add(records=records, targets=("last",))

    rig.on_send = again
    rig.add(records=records, targets=("a", "b"), notes=1)
    await turns(12)
    assert [target for target, *_ in rig.out] == ["a", "b", "app", "later", "last"]
    await rig.driver.stop()


# ── failure ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("error", [Fenced("somebody took over"), JournalError("disk full"), OSError(5, "input/output")])
async def test_a_journal_that_fails_ends_the_driver(error: Exception) -> None:
    journal = GatedJournal()
    rig = Rig(journal)
    rig.add(wake_at=0.0)
    await turns()
    rig.add()
    journal.fail(error)
    await turns()
    assert rig.out == [] and rig.driver.failed.result() is error
    assert rig.driver.backlog == 0
    steps = rig.driver.steps
    rig.add()
    await turns()
    assert rig.out == [] and rig.driver.steps == steps and not journal.waits
    with pytest.raises(Closed, match=f"toy is not running: .*{error.args[-1]}"):
        rig.driver.command("s", Add())
    with pytest.raises(type(error)):
        await rig.driver.settled()
    await rig.driver.stop()


async def test_whoever_waits_learns_of_the_failure() -> None:
    journal = GatedJournal()
    rig = Rig(journal)
    rig.add()
    waiting = asyncio.ensure_future(rig.driver.settled())
    await turns()
    journal.fail(Fenced("somebody took over"))
    with pytest.raises(Fenced):
        await waiting
    await rig.driver.stop()


async def test_a_mistake_of_the_machine_ends_the_driver_and_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    journal = GatedJournal()
    rig = Rig(journal)
    rig.add()
    await turns()
    rig.add()
    rig.driver.deliver("s", Fail("mistake"))  # does not raise: whoever delivers has done nothing wrong
    assert isinstance(rig.driver.failed.result(), KeyError)
    journal.let()
    await turns()
    assert rig.out == [], "the machine cannot be trusted any more"
    assert journal.durable == 1, "what was under way; the second step was not begun"
    assert "a mistake in the machine" in caplog.text
    await rig.driver.stop()


async def test_a_mistake_is_raised_to_who_commands() -> None:
    rig = Rig()
    with pytest.raises(KeyError):
        rig.driver.command("s", Fail("mistake"))
    assert isinstance(rig.driver.failed.result(), KeyError)
    await rig.driver.stop()


async def test_a_record_that_cannot_be_encoded_ends_the_driver() -> None:
    rig = Rig(GatedJournal())
    rig.add(1 << 70)
    assert isinstance(rig.driver.failed.result(), MISTAKES)
    await turns()
    assert rig.out == []
    await rig.driver.stop()


async def test_a_mistake_in_a_tick_ends_the_driver() -> None:
    rig = Rig()
    rig.toy.ticks = None  # type: ignore[assignment]
    rig.driver._tick()
    assert isinstance(rig.driver.failed.result(), AttributeError)
    await rig.driver.stop()


async def test_wrong_input_is_refused_and_harms_nothing(caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig(GatedJournal(gated=False))
    for message, error in ((Fail("remote"), RemoteError), (Fail("input"), InputError)):
        with pytest.raises(error):
            rig.driver.command("s", message)
        with caplog.at_level(logging.WARNING):
            rig.driver.deliver("s", message)
        assert caplog.records[-1].getMessage().startswith("message refused: node=")
    rig.add()
    await rig.driver.settled()
    assert rig.out == [("t", 1, 1)] and not rig.driver.failed.done()
    await rig.driver.stop()


# ── waiting and stopping ──────────────────────────────────────────────────────────────────────────────────────────


async def test_settled_does_not_wait_for_what_comes_later() -> None:
    journal = GatedJournal()
    rig = Rig(journal)
    rig.add()
    await turns()
    rig.add()
    settled = asyncio.ensure_future(rig.driver.settled())
    await turns()
    for round_ in range(2):
        assert not settled.done()
        rig.add()
        journal.let()
        await turns()
        assert len(rig.out) == 1 + 2 * round_ or round_ == 1
    assert settled.done() and rig.driver.backlog > 0
    await settled
    journal.let()
    await rig.driver.stop()


async def test_waiting_is_bounded_and_says_for_what() -> None:
    rig = Rig(GatedJournal())
    rig.add()
    rig.add()
    with pytest.raises(TimedOut, match=r"2 steps of toy wait for the journal, .* within 0\.01 s; check its disk"):
        await rig.driver.settled(timeout_s=0.01)
    rig.driver.failed.cancel()
    rig.driver._task.cancel()  # type: ignore[union-attr]


async def test_stopping_lets_out_what_waits_and_takes_no_more() -> None:
    journal = GatedJournal()
    rig = Rig(journal)
    rig.add()
    await turns()
    rig.add()
    stopping = asyncio.ensure_future(rig.driver.stop())
    await turns()
    rig.add()
    assert rig.driver.steps == 2
    journal.let()
    await turns()
    journal.let()
    await stopping
    assert rig.out == [("t", 1, 1), ("t", 2, 2)]
    await rig.driver.stop()


async def test_a_journal_that_hangs_does_not_keep_it_from_stopping(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("seriatim.runtime.driver.STOP_S", 0.01)
    rig = Rig(GatedJournal())
    rig.add()
    await turns()
    await rig.driver.stop()
    assert rig.out == [] and "stopped before the journal was done" in caplog.text


async def test_a_journal_that_swallows_being_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waiting with a timeout did that before Python 3.12, where the answer came at the same moment."""

    class Swallowing(GatedJournal):
        async def append(self, records: Sequence[bytes]) -> None:
            try:
                await super().append(records)
            except asyncio.CancelledError:
                self.durable += len(records)

    monkeypatch.setattr("seriatim.runtime.driver.STOP_S", 0.01)
    rig = Rig(Swallowing())
    rig.add()
    await turns()
    await asyncio.wait_for(rig.driver.stop(), 60)


# ── time ──────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_the_earliest_wish_is_kept() -> None:
    rig = Rig()
    assert len(rig.toy.ticks) == 1, "once at the start"
    now = rig.driver.clock.now_ms()
    rig.add(wake_at=now + 60_000)
    rig.add(wake_at=now + 20)
    rig.add(wake_at=now + 90_000)
    rig.add(wake_at=None)
    await until(lambda: len(rig.toy.ticks) == 2, "the tick")
    assert now + 20 <= rig.toy.ticks[1] < now + 60_000
    await rig.driver.stop()


async def test_a_tick_may_wish_for_the_next_one_and_has_effects() -> None:
    journal = GatedJournal()
    rig = Rig(journal)
    effects = Effects()
    effects.send.append(("t", Said(0, 0)))
    effects.wake_at = 0.0  # long ago: as soon as possible, but not without end
    rig.toy.on_tick = effects
    rig.add(wake_at=0.0)
    await until(lambda: len(rig.toy.ticks) == 3, "two more ticks")
    assert rig.out == [], "behind the step that waits for the journal"
    journal.let()
    await turns()
    assert rig.out == [("t", 1, 1), ("t", 0, 0)]
    await rig.driver.stop()


async def test_no_tick_after_the_end() -> None:
    rig = Rig()
    rig.add(wake_at=rig.driver.clock.now_ms() + 5)
    await rig.driver.stop()
    await a_moment(0.02)  # the loop's timers go off in their order: a tick that was left would come before this
    assert len(rig.toy.ticks) == 1


# ── snapshots ─────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_snapshot_is_taken_when_the_journal_has_grown() -> None:
    journal = GatedJournal(gated=False)
    rig = Rig(journal, snapshot_bytes_min=100)
    for _ in range(50):
        rig.add()
        await rig.driver.settled()
    assert 2 < journal.snapshots < 20
    assert journal.bytes_since_snapshot < 200
    assert Toy.rebuilt(journal.recovered()).total == 50
    await rig.driver.stop()


async def test_effects_do_not_wait_for_a_snapshot() -> None:
    journal = GatedJournal()
    rig = Rig(journal, snapshot_bytes_min=0)
    rig.add()
    await turns()
    journal.let()
    await turns()
    assert rig.out == [("t", 1, 1)] and journal.snapshots == 1 and journal.snapshot_state is None
    journal.fail()
    await turns()
    assert isinstance(rig.driver.failed.result(), JournalError)
    await rig.driver.stop()


ACTIONS = st.lists(
    st.one_of(
        st.builds(Add, st.integers(-3, 3), st.integers(0, 3), st.just(("t",)), st.integers(0, 2)),
        st.sampled_from(["turn", "turn", "let", "let", "turns"]),
    ),
    max_size=60,
)


@settings(max_examples=300)
@given(actions=ACTIONS, snapshot_bytes_min=st.sampled_from([0, 20, 60, 1 << 30]))
async def test_a_crash_at_any_moment(actions: list[Any], snapshot_bytes_min: int) -> None:
    """After every single action: what is durable rebuilds the machine as it was after that many records."""
    journal = GatedJournal()
    rig = Rig(journal, snapshot_bytes_min)
    totals = [0]
    sent = 0
    for action in actions:
        if isinstance(action, Add):
            totals += [totals[-1] + action.amount * i for i in range(1, action.records + 1)]
            sent += 1 + action.notes
            rig.driver.deliver("s", action)
        elif action != "let":
            await turns(1 if action == "turn" else 5)
        elif journal.waits:
            journal.let()
        rebuilt = Toy.rebuilt(journal.recovered())
        assert rebuilt.persisted == journal.durable
        assert rebuilt.total == totals[journal.durable]
        said = [persisted for _, _, persisted in rig.out]
        assert said == sorted(said) and max(said, default=0) <= journal.durable
    journal.gated = False
    if journal.waits:
        journal.let()
    await rig.driver.settled()
    assert len(rig.out) == sent and journal.durable == len(totals) - 1
    await rig.driver.stop()
