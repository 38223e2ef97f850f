"""From a publisher at one broker to subscribers at others, by content, in one order."""

from pathlib import Path

import pytest

import seriatim
from seriatim.audit import audit, read_history
from tests.live.overlay.world import brokers, bus_of, write_overlay


async def test_a_filter_chooses_what_comes_and_numbers_have_no_holes(tmp_path: Path) -> None:
    path = write_overlay(tmp_path)
    async with (
        brokers(path),
        bus_of(path, "B4") as publisher,
        bus_of(path, "B3") as subscriber,
        subscriber.subscribe("ticker", where='price > 100 and region = "EU"') as events,
    ):
        for price, region in ((99, "EU"), (101, "EU"), (150, "US"), (200.5, "EU")):
            attributes = {"price": price, "region": region}
            await publisher.publish("ticker", str(price).encode(), attributes=attributes)
        await publisher.publish("other", b"no", attributes={"price": 1000, "region": "EU"})
        got = [await events.next() for _ in range(2)]
        assert [(event.data, event.number) for event in got] == [(b"101", 1), (b"200.5", 2)]
        assert [event.topic for event in got] == ["ticker", "ticker"]
        assert events.unread == 0 and not events.gaps
        [one] = subscriber.metrics().subscriptions
        assert (one.notified, one.held, one.gaps, subscriber.metrics().unpublished) == (2, None, 0, 0)


async def test_an_address_is_enough(tmp_path: Path) -> None:
    path = write_overlay(tmp_path, {"A": "", "B": "A"})
    async with brokers(path) as running:
        url = f"overlay://{running['B'].address}"
        async with seriatim.connect(url) as bus, bus.subscribe("ticker") as events:
            await bus.publish("ticker", b"mine")
            assert (await events.next()).data == b"mine"


@pytest.mark.parametrize("order", ["rooted", "central", "resolution"])
async def test_all_subscribers_agree_and_the_audit_says_so(tmp_path: Path, order: str) -> None:
    log = tmp_path / "log"

    path = write_overlay(tmp_path, options=f'order = "{order}"\n')
    async with (
        brokers(path),
        bus_of(path, "B3", publication_log=log) as one,
        bus_of(path, "B4", publication_log=log) as other,
        one.subscribe(where="n >= 0", log=log) as first,
        other.subscribe(where="n >= 0", log=log) as second,
        other.subscribe("a", where="n >= 5", log=log) as third,
    ):
        for n in range(20):
            one.publish_nowait("a", b"", attributes={"n": n})
            other.publish_nowait("b", b"", attributes={"n": n})
        await one.flush()
        await other.flush()
        ids = [[(await stream.next()).id for _ in range(40)] for stream in (first, second)]
        assert ids[0] == ids[1]
        assert [(await third.next()).number for _ in range(15)] == list(range(1, 16))
    verdicts = audit(read_history(log)).verdicts
    answers = {name: verdicts[name].answer for name in ("fifo", "per-topic", "tno", "integrity")}
    assert set(answers.values()) == {"valid"}, answers
