"""Values that no file should hold: the check refuses each with its key and a fix, before anybody trips over it."""

import math
import tempfile
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from seriatim.cli import main
from seriatim.live.overlay import load_overlay
from seriatim.live.overlay.config import BrokersOptions
from seriatim.live.peers import load_peers
from seriatim.live.peers.config import PeersOptions
from seriatim.model import InputError
from seriatim.runtime.tables import fields_of, read_toml
from seriatim.server.config import ClusterConfig, NodeConfig, load_config, parse_config
from seriatim.server.config_text import config_text
from seriatim.server.description import ClusterDescription, decode_description, encode_description
from seriatim.server.machine_check import check_machine
from tests.server.test_config import TABLES

ONE = 'broker = "nats://127.0.0.1:4222"\nnodes.root = {}\n'
DEEP = "a" + ".a" * 3_000
LONG = "9" * 5_000
OUT_OF_BOUNDS = ["inf", "-inf", "nan", "1e300", "-1", "1e-300", str(2**62)]


def check(folder: Path, text: str) -> str:
    """What `seriatim serve --check` answers to this file, which it must refuse in one line."""
    path = folder / "cluster.toml"
    path.write_text(text, encoding="utf-8")
    result = CliRunner().invoke(main, ["serve", "--config", str(path), "--check"])
    assert result.exit_code == 2, result.output or result.exception
    assert len(result.output.splitlines()) == 1
    return result.output


def numbers(*kinds: type[msgspec.Struct]) -> list[tuple[str, Any]]:
    """Every key that is a number, and what it may be."""
    found = [(key, hint) for kind in kinds for key, hint in fields_of(kind).items()]
    return [(key, hint) for key, hint in found if get_args(hint)[:1] in ((int,), (float,))]


CLUSTER_NUMBERS = [f"{table}.{key}" for table, kind in TABLES.items() for key, _ in numbers(kind)]


@pytest.mark.parametrize("value", OUT_OF_BOUNDS)
@pytest.mark.parametrize("key", CLUSTER_NUMBERS)
def test_a_number_out_of_bounds_is_refused_by_the_check(tmp_path: Path, key: str, value: str) -> None:
    assert check(tmp_path, f"{ONE}{key} = {value}\n").startswith(f"Error: {key}: ")


@pytest.mark.parametrize("value", OUT_OF_BOUNDS)
@pytest.mark.parametrize(
    ("load", "head", "key"),
    [
        *((load_overlay, 'brokers.B1 = "127.0.0.1:7600"\n', key) for key, _ in numbers(BrokersOptions)),
        *((load_peers, 'peers.0 = "127.0.0.1:7500"\n', key) for key, _ in numbers(PeersOptions)),
    ],
    ids=lambda each: each if isinstance(each, str) and "=" not in each else "",
)
def test_so_it_is_in_the_files_of_overlays_and_peers(
    tmp_path: Path, load: Any, head: str, key: str, value: str
) -> None:
    (tmp_path / "system.toml").write_text(f"{head}options.{key} = {value}\n")
    with pytest.raises(InputError) as caught:
        load(tmp_path / "system.toml")
    assert caught.value.field == f"options.{key}" and caught.value.fix


@pytest.mark.parametrize("kind", [*TABLES.values(), ClusterConfig, NodeConfig, BrokersOptions, PeersOptions])
def test_every_number_has_two_bounds(kind: type[msgspec.Struct]) -> None:
    for key, hint in numbers(kind):
        bounds = [each for each in get_args(hint)[1:] if isinstance(each, msgspec.Meta)]
        assert any(each.gt is not None or each.ge is not None for each in bounds), key
        assert any(each.lt is not None or each.le is not None for each in bounds), key


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ('broker = "nats://h"\nnodes.root.journal = "file:\\u0000"', "nodes.root.journal: holds a NUL byte; remove it"),
        (f'{ONE}security.token_file = "a\\u0000b"', "security.token_file: holds a NUL byte"),
        ('broker = "nats://h"\nnodes.root.address = ["a:1", "a\\u0000:1"]', "nodes.root.address: holds a NUL byte"),
        (f'{ONE}homes."a\\u0000" = "root"', "homes.a\\0: holds a NUL byte"),
        (f"{ONE}a = {'[' * 3_000}{']' * 3_000}", "cluster.toml: is nested too deeply; write tables and lists side by"),
        (f"{ONE}a = {'{b = ' * 2_000}1{'}' * 2_000}", "cluster.toml: is nested too deeply"),
        (f"{ONE}homes.{DEEP} = 1", "is nested too deeply"),
        (f"{ONE}{DEEP} = 1", "is nested too deeply"),
        (f"{ONE}limits.jump_max = {LONG}", "cluster.toml: is not TOML: "),
        (f"{ONE}limits.jump_max = 0x{LONG}", "limits.jump_max: the number has more than 64 bits; give a smaller one"),
        (f'broker = "nats://h"\nnodes.root.journal = "file:{LONG}"', "nodes.root.journal: cannot be read: File"),
        (f'{ONE}security.token_file = "{LONG}"', "security.token_file: cannot be read: File name too long"),
        ('broker = "nats://[::1"\nnodes.root = {}', "broker: '[::1' in 'nats://[::1' is not a host and port"),
        ('broker = "nats://h?max_age_s=inf"\nnodes.root = {}', "broker (max_age_s): inf is not from 1 to 1e+09; give"),
        ('broker = "nats://h?duplicates_s=nan"\nnodes.root = {}', "broker (duplicates_s): nan is not from 1 to"),
        (
            'broker = "nats://h?max_bytes=9223372036854775808"\nnodes.root = {}',
            "broker (max_bytes): 9223372036854775808",
        ),
        ('broker = "nats://h?pace_ms=inf"\nnodes.root = {}', "broker (pace_ms): inf is not from 0 to 60000"),
        (
            'broker = "nats://h?connect_timeout_s=nan"\nnodes.root = {}',
            "broker (connect_timeout_s): nan is not above 0",
        ),
    ],
)
def test_what_would_fail_later_is_refused_by_the_check(tmp_path: Path, text: str, answer: str) -> None:
    assert answer in check(tmp_path, text)


KEYS = [*CLUSTER_NUMBERS, "cluster", "broker", "nodes", "homes", "homes.a", "default_home", "streams", "times"]
KEYS += ["nodes.root", "nodes.root.journal", "nodes.root.address", "nodes.root.parent", "security.key", "admin.address"]
VALUES = [*OUT_OF_BOUNDS, "0", "1", "500.5", "true", "[]", "{}", "2020-01-01", "1e9", "07:32:00", f"0x{LONG}"]
VALUES += ['""', '"a\\u0000"', '"nats://[::1"', '"root"', '"file:"', '"file:x"', '"a:1"', '["a:1"]', '"\\u2028\\n"']


@given(st.lists(st.tuples(st.sampled_from(KEYS), st.sampled_from(VALUES)), max_size=3))
def test_whatever_a_file_says_it_is_refused_or_it_can_be_served(lines: list[tuple[str, str]]) -> None:
    """What passes the check reads back the same, and clients can read what sequencers would tell them of it."""
    given = {"broker": '"nats://127.0.0.1:4222"', "nodes.root.journal": '"memory"'}
    for key, value in lines:
        if not key.startswith("nodes") or key == "nodes.root.journal":
            given[key] = value
        else:  # TOML has no key twice, nor a key below another one
            given = {name: text for name, text in given.items() if not name.startswith("nodes")} | {key: value}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "cluster.toml"
        path.write_text("\n".join(f"{key} = {value}" for key, value in given.items()), encoding="utf-8")
        try:
            config = load_config(path)
            check_machine(config, list(config.nodes))
        except InputError as error:
            assert error.problem and error.fix
            return
        again = parse_config(load_again(config, Path(folder)), config.folder)
        assert msgspec.structs.replace(again, file=config.file) == config
        described = ClusterDescription.of(config.cluster, config.tree, config.options)
        told = msgspec.structs.replace(described, broker_options=config.broker_options)
        assert decode_description(encode_description(told)) == told
        assert all(math.isfinite(value) for value in msgspec.to_builtins(config.times).values())


def load_again(config: ClusterConfig, folder: Path) -> dict[str, Any]:
    (folder / "again.toml").write_text(config_text(config), encoding="utf-8")
    return read_toml(folder / "again.toml")
