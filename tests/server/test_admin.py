"""The admin port over real sockets: four paths, and nothing that can be sent to it does harm."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from seriatim.model import ConnectionFailed, InputError
from seriatim.runtime.net.security import SecurityOptions
from seriatim.server.admin import CONNECTIONS_MAX, HEAD_BYTES_MAX, AdminServer
from seriatim.server.health import PROBLEMS_MAX, Kind, Ledger, Problem, Trouble
from seriatim.server.metrics import Metrics, add_listeners
from tests.certificates import Certificates
from tests.runtime.net.hosts import dialing, serving, until

TOKEN = "a-token-of-some-length"


@asynccontextmanager
async def admin(
    problems: Callable[[], list[Problem]] = list,
    explain: Callable[[], list[Any]] = lambda: ["orders 5: waits for prices 3"],
    **more: Any,
) -> AsyncIterator[AdminServer]:
    metrics = Metrics()
    metrics.sample("tickets_total", "Tickets.", lambda: 3)
    server = AdminServer(
        "127.0.0.1:0",
        metrics.text,
        status=lambda: {"nodes": {"root": {"epoch": 2}}},
        explain=explain,
        problems=problems,
        **more,
    )
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


async def send(server: AdminServer, data: bytes, ssl: Any = None) -> tuple[int, dict[str, str], bytes]:
    """Status, header fields and body of the answer; status 0: closed without one."""
    host, _, port = server.address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port), ssl=ssl)
    try:
        writer.write(data)
        answer = await asyncio.wait_for(reader.read(), 60)
    except ConnectionError:
        return 0, {}, b""
    finally:
        writer.close()
    if not answer:
        return 0, {}, b""
    head, _, body = answer.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    fields = dict(line.split(": ", 1) for line in lines)
    assert int(fields["Content-Length"]) == len(body)
    return int(first.split()[1]), fields, body


async def get(server: AdminServer, path: str, *fields: str, ssl: Any = None) -> tuple[int, dict[str, str], bytes]:
    return await send(server, "\r\n".join([f"GET {path} HTTP/1.1", "Host: x", *fields, "", ""]).encode(), ssl)


async def test_the_four_paths() -> None:
    async with admin() as server:
        status, fields, body = await get(server, "/metrics")
        assert (status, fields["Content-Type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
        assert [family.name for family in text_string_to_metric_families(body.decode())] == ["tickets"]
        status, fields, body = await get(server, "/status?pretty")
        assert (status, fields["Content-Type"]) == (200, "application/json")
        assert json.loads(body) == {"nodes": {"root": {"epoch": 2}}}
        assert json.loads((await get(server, "/explain"))[2]) == ["orders 5: waits for prices 3"]
        assert (await get(server, "/health"))[0::2] == (200, b"ok\n")
        assert (await get(server, "/"))[0] == 404


def problem(kind: Kind) -> list[Problem]:
    return [Problem(node="eu", kind=kind, what="root", reason="something is away", seconds=12.3)]


async def test_health_says_what_is_wrong() -> None:
    async with admin(problems=lambda: problem("link")) as server:
        assert (await get(server, "/health"))[0::2] == (503, b"eu: something is away (for 12 s)\n")
        status, fields, body = await get(server, "/health", "Accept: application/json")
        assert (status, fields["Content-Type"]) == (503, "application/json")
        assert [json.loads(line) for line in body.splitlines()] == [
            {"node": "eu", "kind": "link", "what": "root", "reason": "something is away", "seconds": 12.3}
        ]
    async with admin(problems=lambda: problem("link"), token=TOKEN) as server:
        assert (await get(server, "/health"))[0::2] == (503, b"not healthy\n")


@pytest.mark.parametrize(
    ("kind", "ready", "live"), [("link", 200, 200), ("broker", 503, 200), ("starting", 503, 200), ("failed", 503, 503)]
)
async def test_not_everything_that_is_wrong_keeps_clients_away_or_is_cured_by_a_restart(
    kind: Kind, ready: int, live: int
) -> None:
    async with admin(problems=lambda: problem(kind), token=TOKEN) as server:
        probes = [(await get(server, path))[0::2] for path in ("/health", "/ready", "/live")]
        no = {"/ready": b"not ready\n", "/live": b"not live\n"}
        assert probes == [
            (503, b"not healthy\n"),
            (ready, no["/ready"] if ready == 503 else b"ok\n"),
            (live, no["/live"] if live == 503 else b"ok\n"),
        ]


def test_it_is_known_how_long_a_problem_has_lasted() -> None:
    now_s = 100.0
    ledger = Ledger("eu", lambda: now_s)
    away, late = Trouble("link", "root", "root is away"), Trouble("stamps", "climbing", "stamps are late", 5.0)
    assert [each.seconds for each in ledger.update([away, late])] == [0.0, 5.0]
    now_s = 107.0
    assert [each.seconds for each in ledger.update([Trouble("link", "root", "it is still away")])] == [7.0]
    assert ledger.update([]) == []
    assert [each.seconds for each in ledger.update([away])] == [0.0]
    many = ledger.update(Trouble("log", str(each), "is gone") for each in range(PROBLEMS_MAX + 5))
    assert (len(many), many[-1].reason) == (PROBLEMS_MAX + 1, "5 more problems are left out")


async def test_a_token_is_asked_for() -> None:
    async with admin(token=TOKEN) as server:
        for path in ("/metrics", "/status", "/explain", "/nothing"):
            for fields in (
                (),
                ("Authorization: Bearer",),
                ("Authorization: Bearer wrong",),
                (f"Authorization: Basic {TOKEN}",),
                (f"X-Authorization: Bearer {TOKEN}",),
                ("Authorization: Bearer \xff\xfe",),
            ):
                status, answer, body = await get(server, path, *fields)
                assert (status, answer["WWW-Authenticate"]) == (401, "Bearer")
                assert b"tickets" not in body and b"epoch" not in body
        assert (await get(server, "/status", f"authorization:  bearer {TOKEN}"))[0] == 200
        assert (await get(server, "/health"))[0] == 200


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"POST /status HTTP/1.1\r\n\r\n", 405),
        (b"get /status HTTP/1.1\r\n\r\n", 405),
        (b"GET /status\r\n\r\n", 400),
        (b"GET http://elsewhere/ HTTP/1.1\r\n\r\n", 400),
        (b"GET /status HTTP/2.0\r\n\r\n", 400),
        (b"\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\n" + b"x: y\r\n" * HEAD_BYTES_MAX + b"\r\n", 431),
        (b"GET / HTTP/1.1\r\nHost: x\r\n", 408),
    ],
)
async def test_what_is_not_a_question_gets_an_answer_too(data: bytes, status: int) -> None:
    async with admin(request_timeout_s=1.0 if status == 408 else 60.0) as server:
        answered = (await send(server, data))[0]
        assert answered in (status, 0) if status == 431 else answered == status  # it may not get read in time
        assert (await get(server, "/health"))[0] == 200


async def test_a_failing_answer_is_told_and_reported() -> None:
    reported: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))

    def broken() -> list[Any]:
        raise KeyError("root")

    async with admin(explain=broken) as server:
        assert (await get(server, "/explain"))[0] == 500
        assert (await get(server, "/status"))[0] == 200
        await until(lambda: len(reported) == 1, "the report")
        assert isinstance(reported[0]["exception"], KeyError)


async def test_idle_connections_are_bounded_in_number_and_time() -> None:
    async with admin(request_timeout_s=2.0) as server:
        host, _, port = server.address.rpartition(":")
        idle = [await asyncio.open_connection(host, int(port)) for _ in range(CONNECTIONS_MAX + 5)]
        answers = await asyncio.gather(*(reader.read() for reader, _ in idle), return_exceptions=True)
        told = [answer for answer in answers if isinstance(answer, bytes) and b" 408 " in answer]
        assert len(told) == CONNECTIONS_MAX
        for _, writer in idle:
            writer.close()
        assert (await get(server, "/health"))[0] == 200


async def test_over_tls(certificates: Certificates) -> None:
    security = SecurityOptions(certificate=certificates.server, key=certificates.server_key)
    client = SecurityOptions(authority=certificates.authority)
    async with admin(context=security.server_context()) as server:
        assert server.url.startswith("https://127.0.0.1:")
        assert (await get(server, "/health", ssl=client.client_context()))[0] == 200
        assert (await get(server, "/health"))[0] == 0


async def test_the_port_of_the_nodes_is_measured() -> None:
    async with serving() as listener, dialing(listener.address) as (dialer, asker):
        metrics = Metrics()
        add_listeners(metrics, lambda: {"root": listener})
        await dialer.wait_connected("root", 60)
        asker.ask(1)
        await until(lambda: asker.requests() == [1], "an answer")
        samples = {
            (sample.name, *sample.labels.values()): sample.value
            for family in text_string_to_metric_families(metrics.text())
            for sample in family.samples
        }
        assert samples["seriatim_connections", "root", "client"] == 1
        assert samples["seriatim_accepted_total", "root"] == 1
        assert samples["seriatim_frames_total", "root", "in"] == 2  # hello and ticket
        assert samples["seriatim_frames_total", "root", "out"] == 2


async def test_mistakes_are_explained() -> None:
    with pytest.raises(InputError, match="admin address"):
        AdminServer("nowhere", Metrics().text, dict, list, list)
    async with admin() as server:
        taken = AdminServer(server.address, Metrics().text, dict, list, list)
        with pytest.raises(ConnectionFailed, match="another process uses it"):
            await taken.start()
