"""A process with nodes: ports, neighbours, answers on the broker, and what happens when a node fails."""

import asyncio
import socket
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from seriatim.brokers.urls import open_broker
from seriatim.live.server import SequencerServer, check_server
from seriatim.model import Closed, ConnectionFailed, InputError, JournalError, Node
from seriatim.runtime import Journal
from seriatim.runtime.journal.interface import MemoryJournal
from seriatim.server.config import ClusterConfig, load_config, parse_config
from seriatim.server.description import ClusterDescription, decode_description, describe_subject
from seriatim.server.status import NodeExplanation, NodeStatus, ServerStatus, node_subject
from tests import waiting
from tests.ports import free_port

WAIT_S = 60.0


def config_of(folder: Path, name: str, nodes: dict[str, dict[str, Any]], **more: Any) -> ClusterConfig:
    for node in nodes.values():
        node.setdefault("address", "127.0.0.1:0")
    return parse_config({"broker": f"memory://{name}", "nodes": nodes, **more}, folder)


async def until(what: str, holds: Callable[[], bool]) -> None:
    await waiting.until(holds, what)


def is_linked(server: SequencerServer) -> bool:
    return all(link.connected for status in server.status().nodes for link in status.links.values())


async def ask(name: str, subject: str) -> bytes | None:
    broker = open_broker(f"memory://{name}")
    await broker.open()
    try:
        assert broker.requests is not None
        return await broker.requests.request(subject, b"", 10.0)
    finally:
        await broker.close()


async def description_of(name: str) -> ClusterDescription:
    answer = await ask(name, describe_subject("seriatim"))
    assert answer is not None
    return decode_description(answer)


async def test_a_whole_tree_in_one_process(tmp_path: Path) -> None:
    nodes = {"root": {}, "eu": {"parent": "root"}, "de": {"parent": "eu"}}
    config = config_of(tmp_path, "whole", nodes, homes={"orders": "de"}, default_home="eu")
    server = SequencerServer(config)
    await server.start()
    try:
        description = await description_of("whole")
        assert description.addresses == {name: [address] for name, address in server.addresses.items()}
        assert all(not address.endswith(":0") for address in server.addresses.values())
        assert (description.parents, description.default_home) == ({"root": None, "eu": "root", "de": "eu"}, "eu")
        links = {status.node: status.links for status in server.status().nodes}
        assert {node: sorted(each) for node, each in links.items()} == {
            "root": ["eu"],
            "eu": ["de", "root"],
            "de": ["eu"],
        }
        assert all(link.connected for each in links.values() for link in each.values())
        assert [each.waits for each in server.explain()] == [[], [], []]
    finally:
        await server.stop()
    assert {status.role for status in server.status().nodes} == {"stopped"}
    assert await ask("whole", describe_subject("seriatim")) is None


async def test_neighbours_in_other_processes_are_dialed(tmp_path: Path) -> None:
    nodes = {
        "root": {"address": f"127.0.0.1:{free_port()}"},
        "eu": {"parent": "root", "address": f"127.0.0.1:{free_port()}"},
    }
    config = config_of(tmp_path, "apart", nodes)
    child = SequencerServer(config, ["eu"])
    await child.start()
    told = "parent root is not connected: tried 127.0.0.1:"
    await until("an attempt", lambda: child.explain()[0].waits[0].startswith(told))
    await child.stop()
    parent = SequencerServer(config, ["root"])
    await parent.start()
    child = SequencerServer(config, ["eu"])
    try:
        assert parent.explain()[0].waits == ["child eu is not connected: it has not dialed"]
        await child.start()
        await until("the link", lambda: is_linked(child) and is_linked(parent))
        assert parent.explain()[0].waits == []
        assert sorted((await description_of("apart")).addresses) == ["eu", "root"]
    finally:
        await child.stop()
        await parent.stop()


async def test_nodes_answer_for_themselves_on_the_broker(tmp_path: Path) -> None:
    server = SequencerServer(config_of(tmp_path, "answers", {"root": {}}))
    await server.start()
    try:
        for place in (None, 0):
            answer = await ask("answers", node_subject("seriatim", "status", "root", place))
            assert answer is not None
            status = msgspec.json.decode(answer, type=NodeStatus)
            assert (status.node, status.role, status.address) == ("root", "active", server.addresses["root"])
        answer = await ask("answers", node_subject("seriatim", "explain", "root"))
        assert answer is not None
        assert msgspec.json.decode(answer, type=NodeExplanation) == NodeExplanation(node="root", waits=[])
        assert await ask("answers", node_subject("seriatim", "status", "eu")) is None
    finally:
        await server.stop()


async def test_the_admin_port_says_the_same(tmp_path: Path) -> None:
    nodes: dict[str, dict[str, Any]] = {"root": {}, "eu": {"parent": "root"}}
    server = BreakingServer(config_of(tmp_path, "admin", nodes, admin={"address": "127.0.0.1:0"}))
    await server.start()
    try:
        assert await get(server, "/health") == (200, "ok\n")
        _, body = await get(server, "/status")
        status = msgspec.json.decode(body, type=ServerStatus)
        assert [each.node for each in status.nodes] == ["root", "eu"]
        assert await get(server, "/explain") == (
            200,
            '[{"node":"root","waits":[],"left_out":0},{"node":"eu","waits":[],"left_out":0}]\n',
        )
        _, text = await get(server, "/metrics")
        samples = {
            (sample.name, *sample.labels.values()): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }
        assert samples["seriatim_node_active", "eu"] == 1
        assert samples["seriatim_epoch", "root"] == 1
        assert samples["seriatim_unacknowledged", "eu", "root"] == 0
        assert samples["seriatim_connections", "root", "client"] == 0
        assert samples["seriatim_stamp_entries_count", "root"] == 0
        assert samples["seriatim_hop_ms_count", "eu"] == 0
        await server.fill("eu")
        reason = "eu: is failed: no space left on the device; make room and start again (for 0 s)"
        assert await get(server, "/health") == (503, f"{reason}\n")
        assert (await get(server, "/live"))[0] == (await get(server, "/ready"))[0] == 503
    finally:
        await server.stop()


async def get(server: SequencerServer, path: str) -> tuple[int, str]:
    """One question to the admin port."""
    assert server.admin_url is not None
    host, _, port = server.admin_url.removeprefix("http://").rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(f"GET {path} HTTP/1.1\r\n\r\n".encode())
    answer = (await asyncio.wait_for(reader.read(), WAIT_S)).decode()
    writer.close()
    await writer.wait_closed()
    head, _, body = answer.partition("\r\n\r\n")
    return int(head.split()[1]), body


async def test_more_homes_than_fit_into_a_message_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seriatim.brokers.memory.broker.MemoryBroker.payload_bytes_max", 2_000)
    homes = {f"topic-{index}": "root" for index in range(200)}
    server = SequencerServer(config_of(tmp_path, "large", {"root": {}}, homes=homes))
    with pytest.raises(InputError, match=r"^homes: 200 homes make \d+ bytes, and one message may have 2000; use"):
        await server.start()
    assert not (tmp_path / "journal-seriatim.root").exists()


async def test_a_restart_goes_on_with_the_journal_in_a_new_epoch(tmp_path: Path) -> None:
    epochs = []
    for _ in range(3):
        server = SequencerServer(config_of(tmp_path, "again", {"root": {}}, homes={"orders": "root"}))
        await server.start()
        await until("the journal", lambda server=server: server.status().nodes[0].appends > 0)  # type: ignore[misc]
        epochs.append(server.status().nodes[0].epoch)
        await server.stop()
    assert epochs == [1, 2, 3]


async def test_a_journal_from_before_the_clusters_name_was_in_the_default_goes_on_when_it_is_renamed(
    tmp_path: Path,
) -> None:
    earlier, now = tmp_path / "journal-root", tmp_path / "journal-seriatim.root"
    config = config_of(tmp_path, "renamed", {"root": {"journal": "file:journal-root"}}, homes={"orders": "root"})
    server = SequencerServer(config)
    await server.start()
    await until("the journal", lambda: server.status().nodes[0].appends > 0)
    await server.stop()
    files = {path.name: path.read_bytes() for path in earlier.iterdir()}
    config = config_of(tmp_path, "renamed", {"root": {}}, homes={"orders": "root"})
    with pytest.raises(InputError, match=r"^nodes\.root\.journal: 'journal-root' exists, .* mv .*/journal-root "):
        SequencerServer(config)
    assert not now.exists()
    assert {path.name: path.read_bytes() for path in earlier.iterdir()} == files
    earlier.rename(now)
    server = SequencerServer(config)
    await server.start()
    assert server.status().nodes[0].epoch == 2
    assert server.status().nodes[0].journal == "file:journal-seriatim.root"
    await server.stop()


async def test_a_journal_in_use_keeps_a_second_process_from_starting(tmp_path: Path) -> None:
    first = SequencerServer(config_of(tmp_path, "lock", {"root": {}}))
    second = SequencerServer(config_of(tmp_path, "lock", {"root": {}}))
    await first.start()
    try:
        with pytest.raises(JournalError, match=r"journal-seriatim\.root"):
            await second.start()
        assert first.status().nodes[0].role == "active"
    finally:
        await first.stop()
        await second.stop()


async def test_a_second_process_that_is_refused_does_not_take_the_first_ones_place_at_its_parent(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It must not introduce itself to the parent before the journal is its own: the parent would believe it."""
    caplog.set_level("INFO")
    nodes: dict[str, dict[str, Any]] = {
        "root": {"address": f"127.0.0.1:{free_port()}"},
        "eu": {"parent": "root", "address": f"127.0.0.1:{free_port()}"},
    }
    config = config_of(tmp_path, "twice", nodes)
    parent, first = SequencerServer(config, ["root"]), SequencerServer(config, ["eu"])
    second = SequencerServer(
        config_of(tmp_path, "twice", nodes | {"eu": {"parent": "root", "address": f"127.0.0.1:{free_port()}"}}), ["eu"]
    )
    await parent.start()
    await first.start()
    try:
        await until("the link", lambda: is_linked(first) and is_linked(parent))
        with pytest.raises(JournalError, match="node eu is run by another process"):
            await second.start()
        assert "replaced" not in [getattr(record, "reason", "") for record in caplog.records]
        assert is_linked(first)
        assert is_linked(parent)
    finally:
        await second.stop()
        await first.stop()
        await parent.stop()


async def test_older_keywords_are_logged_with_the_name_of_the_file(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "cluster.toml"
    file.write_text('broker = "memory://older"\norder = "tree"\nnodes.root = { address = "127.0.0.1:0" }\n')
    async with SequencerServer(load_config(file)):
        assert f'older keyword: keyword=order file={file} meaning=order "tree" is an older keyword' in caplog.text


async def test_a_port_in_use_is_named(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        server = SequencerServer(config_of(tmp_path, "port", {"root": {"address": address}}))
        with pytest.raises(ConnectionFailed, match=f"cannot listen on {address}.*another process uses it"):
            await server.start()


class Breaking(MemoryJournal):
    """Full after the first append."""

    def __init__(self) -> None:
        super().__init__()
        self.is_full = False

    async def append(self, records: Sequence[bytes]) -> None:
        if self.is_full:
            raise JournalError("no space left on the device; make room and start again")
        await super().append(records)


class BreakingServer(SequencerServer):
    """Each node's journal can be filled."""

    def journal(self, node: Node) -> Journal:
        self.journals = getattr(self, "journals", {})
        self.journals[node] = Breaking()
        journal: Journal = self.journals[node]
        return journal

    async def fill(self, node: Node) -> None:
        """Let the node want to write."""
        self.journals[node].is_full = True
        from seriatim.protocols.tree.messages import Refresh

        self.served[node].switchboard.send("somebody", node, Refresh(1, 0.0))
        await until(f"{node} to fail", lambda: self.served[node].role == "failed")


async def test_a_node_that_fails_is_reported_and_the_others_go_on(tmp_path: Path) -> None:
    server = BreakingServer(config_of(tmp_path, "fail", {"root": {}, "eu": {"parent": "root"}}))
    await server.start()
    running = asyncio.create_task(server.run())
    try:
        await server.fill("eu")
        await asyncio.sleep(0)
        assert not running.done()
        roles = {status.node: (status.role, status.reason) for status in server.status().nodes}
        assert roles["root"] == ("active", "")
        assert roles["eu"] == ("failed", "no space left on the device; make room and start again")
        assert server.explain()[1].waits == ["failed: no space left on the device; make room and start again"]
        assert await ask("fail", node_subject("seriatim", "status", "eu")) is None
        assert await ask("fail", node_subject("seriatim", "status", "eu", 0)) is not None
        await server.fill("root")
        with pytest.raises(Closed, match=r"no node is left: root: no space left .*; eu: no space left"):
            await asyncio.wait_for(running, WAIT_S)
    finally:
        await server.stop()


async def test_a_requested_stop_ends_the_run(tmp_path: Path) -> None:
    server = SequencerServer(config_of(tmp_path, "stop", {"root": {}}))
    await server.start()
    running = asyncio.create_task(server.run())
    server.request_stop()
    await asyncio.wait_for(running, WAIT_S)
    await server.stop()
    await server.stop()


BAD: list[tuple[dict[str, dict[str, Any]], Sequence[Node] | None, int, str]] = [
    ({"root": {}}, ["eu"], 0, "--node: there is no node 'eu'; use one of root"),
    ({"root": {}}, None, 1, "nodes.root.address: there is no standby number 1; give it a list of addresses"),
    ({"root": {}, "eu": {"parent": "root"}}, ["eu"], 0, "nodes.root.address: other processes cannot know port 0"),
    ({"root": {"journal": "file:no/where"}}, None, 0, "nodes.root.journal: the folder "),
    (
        {"root": {"bind": "127.0.0.1:1"}, "eu": {"parent": "root", "bind": "127.0.0.1:1"}},
        None,
        0,
        "bind: two nodes of this process listen on '127.0.0.1:1'",
    ),
]


@pytest.mark.parametrize(("nodes", "chosen", "place", "answer"), BAD, ids=[answer[:30] for *_, answer in BAD])
def test_what_cannot_run_here_is_refused_before_anything_is_opened(
    tmp_path: Path, nodes: dict[str, dict[str, Any]], chosen: Sequence[Node] | None, place: int, answer: str
) -> None:
    with pytest.raises(InputError) as caught:
        check_server(config_of(tmp_path, "bad", nodes), chosen, place)
    assert str(caught.value).startswith(answer)


@pytest.mark.parametrize(
    ("url", "answer"),
    [
        ("ftp://host", "broker: 'ftp://host' does not begin with a scheme we know; use one of nats://, tls://"),
        ("nats://host:port", "broker: 'host:port' in 'nats://host:port' is not a host and port"),
        ("nats://user:secret@host?repicas=3", "broker (repicas): this kind of broker has no such option; did you mean"),
        ("nats://host?creds=no-such-file", "broker (credentials_file): there is no file /"),
    ],
)
def test_a_wrong_url_is_refused_without_its_secrets(tmp_path: Path, url: str, answer: str) -> None:
    with pytest.raises(InputError) as caught:
        check_server(parse_config({"broker": url, "nodes": {"root": {}}}, tmp_path))
    assert str(caught.value).startswith(answer)
    assert "secret" not in str(caught.value)


def test_wrong_security_files_are_named_by_their_key(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("short")
    config = config_of(tmp_path, "bad", {"root": {}}, security={"token_file": "token"})
    with pytest.raises(InputError, match=r"^security\.token.*5 characters"):
        check_server(config)
