"""The commands about running clusters, without a cluster: help, checks of files and options, formats."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from seriatim.cli import main
from seriatim.cli.common import default_journals, table
from seriatim.cli.pub import template
from seriatim.cli.status import _bytes
from seriatim.cli.sub import Shown, _as_json, _as_text, _readable
from seriatim.client import Event
from seriatim.model import InputError
from tests.certificates import Certificates
from tests.ports import free_port

CLUSTER = 'broker = "nats://127.0.0.1:4222"\nnodes.root = {}\n'


def run(*words: str | Path) -> tuple[int, str, str]:
    result = CliRunner().invoke(main, list(map(str, words)))
    return result.exit_code, result.stdout, result.stderr


def test_check_shows_what_the_file_means(tmp_path: Path) -> None:
    path = tmp_path / "cluster.toml"
    path.write_text(CLUSTER)
    code, out, _ = run("serve", "--config", path, "--check")
    assert code == 0
    assert out.startswith('cluster = "seriatim"\nbroker = "nats://127.0.0.1:4222"\n')
    again = tmp_path / "again.toml"
    again.write_text(out)
    assert run("serve", "--config", again, "--check") == (0, out, "")
    code, out, _ = run("serve", "--config", path, "--check", "--json", "--admin", "127.0.0.1:9")
    assert (code, json.loads(out)["admin"]["address"]) == (0, "127.0.0.1:9")


@pytest.mark.parametrize(
    ("text", "words", "answer"),
    [
        ("", [], "Error: broker: is missing; "),
        (f"{CLUSTER}mode = 'lag'", [], "Error: mode: 'lag' does not fit"),
        (CLUSTER, ["--plan", "no.toml"], "Error: no.toml: there is no such file; "),
        (CLUSTER, ["--admin", "here"], "Error: admin.address: 'here' is not an address; "),
        (f"{CLUSTER}security.token_file = 'no'", [], "Error: security.token_file: "),
    ],
)
def test_a_wrong_file_is_exit_code_2(tmp_path: Path, text: str, words: list[str], answer: str) -> None:
    path = tmp_path / "cluster.toml"
    path.write_text(text)
    for check in (["--check"], []):  # nothing is opened without --check either
        code, out, err = run("serve", "--config", path, *words, *check)
        assert (code, out) == (2, "")
        assert err.startswith(answer)


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (["--node", "eu"], "Error: --node: there is no node 'eu'; use one of root\n"),
        (["--standby"], "Error: nodes.root.address: there is no standby number 1; "),
    ],
)
def test_what_the_file_does_not_have_may_be_in_the_layout(tmp_path: Path, words: list[str], answer: str) -> None:
    """So --check, which opens nothing, says what is missing; to run it, the broker is asked."""
    path = tmp_path / "cluster.toml"
    path.write_text(CLUSTER.replace("4222", str(free_port())))
    code, out, err = run("serve", "--config", path, *words, "--check")
    assert (code, out) == (2, "") and err.startswith(answer)
    code, out, err = run("serve", "--config", path, *words)
    assert (code, out) == (1, "") and "no NATS server answers" in err


TWO_NODES = f"{CLUSTER}nodes.eu = {{ parent = 'root', address = '127.0.0.1:7412' }}\n"
STANDBYS = TWO_NODES.replace("'127.0.0.1:7412'", "['127.0.0.1:7412', '127.0.0.1:7413'], journal = 'jetstream'")


@pytest.mark.parametrize("asks", ["token", "certificate"])
def test_nodes_apart_need_a_token_of_their_own(tmp_path: Path, certificates: Certificates, asks: str) -> None:
    """Where clients must show something, nodes must show what no client has."""
    for name in ("clients", "nodes"):
        (tmp_path / name).write_text(f"the-token-of-{name}")
        (tmp_path / name).chmod(0o600)
    security = "token_file = 'clients'\n"
    if asks == "certificate":
        security = (
            f"certificate = '{certificates.server}'\nkey = '{certificates.server_key}'\n"
            f"authority = '{certificates.authority}'\nrequire_client_certificate = true\n"
        )

    def check(nodes: str, *words: str, more: str = "") -> tuple[int, str]:
        path = tmp_path / "cluster.toml"
        path.write_text(f"{nodes}[security]\n{security}{more}")
        code, _, err = run("serve", "--config", path, "--check", *words)
        return code, err

    refused = (2, "Error: security.node_token_file: is missing: a client could say that it is a node, ")
    for nodes, words in ((TWO_NODES, ("--node", "eu")), (STANDBYS, ())):
        code, err = check(nodes, *words)
        assert (code, err[: len(refused[1])]) == refused
        assert check(nodes, *words, more="node_token_file = 'nodes'\n") == (0, "")
    warning = "Warning: security.node_token_file is missing, so all nodes must run in one process\n"
    assert check(TWO_NODES) == (0, warning)
    assert check(CLUSTER) == (0, "")


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (["pub", "orders"], "DATA: either DATA or --stdin is needed"),
        (["pub", "orders", "x", "--stdin"], "DATA: either DATA or --stdin is needed"),
        (["pub", "orders", "{{m}}"], "DATA: {{m}} is unknown; use {{n}}, {{time}}, {{time_ns}}"),
        (["pub", "orders", "x", "--header", "k"], "--header: 'k' is not a header; write it as key=value"),
        (["pub", "orders", "x", "--url", "ftp://x"], "url: "),
        (["sub"], "TOPIC: none is named; name topics, or give --where on an overlay:// URL"),
        (["sub", "a", "--url", "nats"], "url: "),
        (["bench", "--topics", "2", "--hold", "3"], "--hold: 3 of 2 topics"),
        (["up", "--tree", "no.toml"], "no.toml: there is no such file"),
        (["up", "--port", "70000"], "'--port'"),
        (["status", "--url", "ftp://x"], "url: "),
    ],
)
def test_wrong_options_are_exit_code_2(words: list[str], answer: str) -> None:
    code, out, err = run(*words)
    assert (code, out) == (2, "")
    assert answer in err


def test_places_in_braces_are_filled_in() -> None:
    assert template("plain")(7) == b"plain"
    assert template("{{n}} and {{ n }}")(7) == b"7 and 7"
    assert template("{{time}}")(1).startswith(b"20")
    assert int(template("{{time_ns}}")(1)) > 10**18
    with pytest.raises(InputError, match="is unknown"):
        template("{{nn}}")


def event(**more: Any) -> Event:
    given: dict[str, Any] = {
        "topic": "orders",
        "data": b"order 1",
        "headers": None,
        "id": "p-1",
        "publisher": "p",
        "stamp": {"prices": 3, "a": 1},
        "number": 7,
    }
    return Event(**(given | more))


def test_an_event_is_one_line() -> None:
    assert _as_text(event(), Shown(False, False, False)) == "orders 7  order 1"
    assert _as_text(event(index=2), Shown(True, False, False)) == "orders 7.2  [after a 1, prices 3]  order 1"
    assert _as_text(event(stamp={}, out_of_order=True, replayed=True), Shown(True, False, False)) == (
        "orders 7  (out of order)  (replayed)  order 1"
    )
    assert _readable(b"two\nlines\x1b") == "two\\nlines\\x1b"
    assert _readable(b"\xff\x00") == "\\xff\\x00"
    assert _readable("größe".encode()) == "größe"


def test_an_event_is_one_object() -> None:
    row = _as_json(event(headers={"k": "v"}), Shown(True, False, True))
    assert row.pop("notified_at") > 0
    assert row == {
        "topic": "orders",
        "number": 7,
        "index": 0,
        "id": "p-1",
        "publisher": "p",
        "data": "order 1",
        "headers": {"k": "v"},
        "stamp": {"prices": 3, "a": 1},
    }
    assert _as_json(event(data=b"\xff"), Shown(False, False, True))["data_base64"] == "/w=="
    assert _as_json(event(replayed=True), Shown(False, False, True))["replayed"] is True


def test_columns_are_as_wide_as_they_must_be() -> None:
    assert table(["a", "long"], [["bbb", "c"], ["d", ""]]) == "a    long\nbbb  c\nd"
    assert list(map(_bytes, [999, 12_000, 3_400_000])) == ["999 bytes", "12 kB", "3.4 MB"]


def test_journals_are_kept_where_programs_keep_such_things(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/state")
    assert default_journals() == Path("/state/seriatim")
    monkeypatch.delenv("XDG_STATE_HOME")
    assert default_journals() == Path.home() / ".local/state/seriatim"
