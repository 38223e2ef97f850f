"""The cluster's file: what it may say, and what each mistake is answered with."""

import json
import re
import tomllib
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seriatim.model import InputError, TreeError
from seriatim.runtime.tables import description, fields_of
from seriatim.server.config import (
    Admin,
    ClusterConfig,
    NodeConfig,
    Security,
    Streams,
    Times,
    exposed_without_token,
    load_config,
    parse_config,
)
from seriatim.server.config_text import config_text
from seriatim.server.machine_check import check_machine

TABLES: dict[str, type[msgspec.Struct]] = {
    key: kind
    for key, kind in fields_of(ClusterConfig).items()
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct)
}
NATS = 'broker = "nats://127.0.0.1:4222"\n'
ONE = f"{NATS}nodes.root = {{}}\n"
TWO = f'{NATS}nodes.root = {{}}\nnodes.eu = {{ parent = "root", address = "127.0.0.1:7412" }}\n'


def parse(text: str, folder: Path = Path()) -> ClusterConfig:
    return parse_config(tomllib.loads(text), folder)


def test_two_lines_are_enough() -> None:
    config = parse(ONE)
    assert config.cluster == "seriatim"
    assert config.tree.home("anything") == "root"
    assert config.nodes["root"].addresses == ("127.0.0.1:7411",)
    assert config.journal_folder("root") == Path("journal-seriatim.root")
    assert config.options.mode == "log"
    assert exposed_without_token(config) == []


def test_only_unusual_options_of_streams_are_told() -> None:
    assert parse(ONE).broker_options == {}
    unusual = parse(f"{ONE}streams = {{ replicas = 3, storage = 'memory', max_age_s = 60 }}")
    assert unusual.broker_options == {"replicas": 3, "storage": "memory", "max_age_s": 60.0}
    assert parse("broker = 'memory://'\nnodes.root = {}\nstreams.replicas = 3").broker_options == {}


def test_everything_can_be_said(tmp_path: Path) -> None:
    path = tmp_path / "cluster.toml"
    path.write_text(
        """
        cluster = "shop"
        broker = "nats://a:4222,b:4222"
        mode = "ticket"
        causal = true
        default_home = "none"

        [nodes.root]
        address = ["10.0.0.1:7411", "10.0.0.2:7411"]
        bind = "0.0.0.0:7411"
        journal = "jetstream"
        [nodes.eu]
        parent = "root"
        address = "[::1]:7411"
        journal = "file:data/eu"

        [homes]
        orders = "eu"
        "prices.eu" = "root"

        [times]
        retry_ms = 100
        [limits]
        connections_max = 5
        [streams]
        max_age_s = 60
        replicas = 3
        [security]
        token_file = "token"
        [admin]
        address = "127.0.0.1:7499"
        """
    )
    config = load_config(path)
    assert config.tree.home("prices.eu") == "root"
    assert not config.tree.knows("other")
    assert config.nodes["root"].addresses == ("10.0.0.1:7411", "10.0.0.2:7411")
    assert config.journal_folder("root") is None
    assert config.journal_folder("eu") == tmp_path.resolve() / "data/eu"
    assert (config.options.mode, config.options.own_order, config.options.retry_ms) == ("ticket", True, 100.0)
    assert parse(config_text(config), config.folder) == msgspec.structs.replace(config, file="")


@pytest.mark.parametrize(
    ("words", "order", "own_order", "told"),
    [
        ("", "global", False, []),
        ('order = "global"', "global", False, []),
        ('order = "pairwise"', "pairwise", False, []),
        ('order = "tree"', "global", False, ['order "tree" is an older keyword']),
        ("causal = true", "global", True, ["global order needs no causal = true"]),
        ('order = "tree"\ncausal = true', "global", True, ['order "tree" is', "global order needs no causal"]),
        ("causal = false", "global", False, []),
    ],
)
def test_what_is_promised_and_how_older_words_are_read(
    words: str, order: str, own_order: bool, told: list[str]
) -> None:
    config = parse(f"{ONE}{words}")
    assert config.order == order
    assert (config.options.order, config.options.own_order) == (order, own_order)
    assert len(config.notices) == len(told)
    assert all(start in notice.meaning for start, notice in zip(told, config.notices, strict=True))
    again = parse(config_text(config), config.folder)
    assert (again.order, again.options) == (config.order, config.options)


def test_causal_order_of_atoms_needs_no_notice() -> None:
    config = parse(f'{ONE}order = "atoms"\ncausal = true')
    assert (config.order, config.causal, config.options.own_order, config.notices) == ("atoms", True, False, ())


BAD = [
    (f"{ONE}order = 'pairwise'\ncausal = true", "causal: pairwise order does not order topics that one subscription"),
    (
        f"{ONE}order = 'clock'",
        "order: 'clock' does not fit (Invalid enum value 'clock'); give \"global\", \"pairwise\"",
    ),
    ("", "broker: is missing; give the URL of the broker, for example"),
    ("broker = 4222\nnodes.root = {}", "broker: 4222 does not fit (Expected `str`, got `int`); give the URL"),
    ('broker = "localhost"\nnodes.root = {}', "broker: 'localhost' is not a URL; give"),
    (NATS, "nodes: the cluster has no node; add one"),
    (f"{NATS}nodes = 3", "nodes: 3 is not a table; write it as [nodes]"),
    (f"{NATS}nodes.root = 3", "nodes.root: 3 is not a table; write it as [nodes.root]"),
    (f"{ONE}brokr = 1", "brokr: there is no such key; did you mean 'broker'?"),
    (f"{ONE}zzz = 1", "zzz: there is no such key; use one of admin, broker,"),
    (f"{ONE}folder = 'x'", "folder: there is no such key; "),
    (f"{ONE}mode = 'tickets'", "mode: 'tickets' does not fit (Invalid enum value 'tickets'); give \"log\" or"),
    (f"{ONE}causal = 1", "causal: 1 does not fit"),
    (f"{ONE}cluster = 'a b'", "cluster: 'a b' does not fit"),
    (f"{ONE}times.retry_ms = 0", "times.retry_ms: 0 does not fit (Expected `float` >= 1.0); give milliseconds"),
    (f"{ONE}times.retry = 0", "times.retry: there is no such key; did you mean 'retry_ms'?"),
    (f"{ONE}times.lease_ms = nan", "times.lease_ms: nan does not fit"),
    (f"{ONE}limits.connections_max = 2.5", "limits.connections_max: 2.5 does not fit (Expected `int`"),
    (f"{ONE}streams.replicas = 6", "streams.replicas: 6 does not fit"),
    (f"{ONE}security.certificate = 'c'", "security.key: is missing, and certificate is given; give both"),
    (f"{ONE}security.key = 'c'", "security.certificate: is missing"),
    (f"{ONE}security.require_client_certificate = true", "security.require_client_certificate: certificates cannot"),
    (f"{ONE}admin.address = '127.0.0.1:7411'", "admin.address: '127.0.0.1:7411' is also nodes.root.address; give"),
    (f"{ONE}admin.address = '7411'", "admin.address: '7411' is not an address; write \"host:port\""),
    (f"{ONE}homes.a = 1", "homes.a: 1 does not fit (Expected `str`, got `int`); give the name of a node"),
    (f"{ONE}homes.a = 'b'", "homes.a: unknown node 'b'; use one of root"),
    (
        f"{ONE}homes.a.b = 'root'",
        "homes.a: {'b': 'root'} does not fit (Expected `str`, got `object`); give the name of a node (quote",
    ),
    (f"{ONE}homes.'a b' = 'root'", "homes.a b: it holds ' '; blanks,"),
    (
        f"{ONE}streams.buckets = 8\nhomes.a = 'root'",
        "homes.a: topics share buckets, and each bucket has one home; give its",
    ),
    (f"{ONE}streams.buckets = 5000", "streams.buckets: 5000 does not fit"),
    (f"{ONE}default_home = 'b'", "default_home: unknown node 'b'; use one of root"),
    (f"{NATS}nodes.'a b' = {{}}", "nodes.a b: the key is not valid; use a name of up to 64 letters"),
    (f"{NATS}nodes.none = {{}}", "nodes.none: 'none' means no node"),
    (f"{NATS}nodes.root.adress = 'a:1'", "nodes.root.adress: there is no such key; did you mean 'address'?"),
    (f"{NATS}nodes.root.address = 'a'", "nodes.root.address: 'a' is not an address"),
    (f"{NATS}nodes.root.address = 'a:b'", "nodes.root.address: 'a:b' has no port between 0 and 65535"),
    (f"{NATS}nodes.root.address = 'a:65536'", "nodes.root.address: 'a:65536' has no port"),
    (f"{NATS}nodes.root.address = '::1:7411'", "nodes.root.address: '::1:7411' has more than one colon"),
    (f"{NATS}nodes.root.address = []", "nodes.root.address: the list is empty"),
    (f"{NATS}nodes.root.address = ['a:1', 2]", "nodes.root.address: ['a:1', 2] does not fit"),
    (f"{NATS}nodes.root.bind = 'x'", "nodes.root.bind: 'x' is not an address"),
    (f"{NATS}nodes.root.journal = 'disk'", "nodes.root.journal: 'disk' is not a journal; use \"file:<folder>\""),
    (f"{NATS}nodes.root.journal = 'file:'", 'nodes.root.journal: the folder is missing; give one: "file:journal-root"'),
    (f"{NATS}nodes.root.address = ['a:1', 'b:1']", "nodes.root.journal: a standby elsewhere cannot take over 'a file'"),
    ("broker = 'memory://'\nnodes.root.journal = 'jetstream'", "nodes.root.journal: 'memory://' has no journals"),
    ("broker = 'nats+core://x'\nnodes.root = {}", "mode: 'log' needs a broker that keeps a log, and nats+core does"),
    (f"{NATS}nodes.a = {{}}\nnodes.b.parent = 'a'", "nodes.b.address: '127.0.0.1:7411' is also nodes.a.address"),
    (
        f"{TWO}nodes.us = {{ parent = 'root', address = 'x:1', journal = 'file:journal-seriatim.eu' }}",
        "nodes.us.journal: 'journal-seriatim.eu' is also the journal of eu; give each node its own",
    ),
]


@pytest.mark.parametrize(("text", "answer"), BAD, ids=[answer.partition(":")[0] for _, answer in BAD])
def test_a_mistake_is_named_with_its_key_and_a_fix(text: str, answer: str) -> None:
    with pytest.raises(InputError) as caught:
        parse(text)
    assert str(caught.value).startswith(answer)


BAD_TREES = [
    (f"{TWO}nodes.us = {{ address = 'x:1' }}", "parents: more than one root: root, us; give all but one"),
    (f"{NATS}nodes.a = {{ parent = 'b' }}\nnodes.b = {{ parent = 'a', address = 'x:1' }}", "nodes.a.parent: cycle a"),
    (f"{NATS}nodes.a = {{ parent = 'b' }}", "nodes.a.parent: unknown parent 'b'; add 'b' or correct the name"),
]


@pytest.mark.parametrize(("text", "answer"), BAD_TREES)
def test_a_wrong_tree_is_a_tree_error(text: str, answer: str) -> None:
    with pytest.raises(TreeError) as caught:
        parse(text)
    assert str(caught.value).startswith(answer)


def test_a_plan_moves_nodes_and_homes(tmp_path: Path) -> None:
    cluster, plan = tmp_path / "cluster.toml", tmp_path / "plan.toml"
    cluster.write_text(f"{TWO}nodes.us = {{ parent = 'root', address = 'x:1' }}\nhomes = {{ a = 'eu', b = 'eu' }}\n")
    plan.write_text(
        "default_home = 'us'\nnodes = { eu = {}, root = { parent = 'eu' } }\nhomes = { a = 'us', c = 'root' }\n"
    )
    config = load_config(cluster, plan)
    assert config.tree.parents == {"root": "eu", "eu": None, "us": "root"}
    assert config.nodes["eu"].addresses == ("127.0.0.1:7412",)
    assert config.homes == {"a": "us", "b": "eu", "c": "root"}
    assert config.tree.home("z") == "us"


@pytest.mark.parametrize(
    ("plan", "answer"),
    [
        ("broker = 'x'", "broker: there is no such key in "),
        ("nodes.asia.parent = 'root'", "nodes.asia: only "),
        ("nodes.eu.address = 'x:1'", "nodes.eu.address: there is no such key in "),
        ("nodes = 1", "nodes: 1 is not a table"),
        ("homes = 1", "homes: 1 is not a table"),
        ("homes.a = 'mars'", "homes.a: unknown node 'mars'"),
    ],
)
def test_a_wrong_plan_is_named(tmp_path: Path, plan: str, answer: str) -> None:
    (tmp_path / "cluster.toml").write_text(TWO)
    (tmp_path / "plan.toml").write_text(plan)
    with pytest.raises(InputError) as caught:
        load_config(tmp_path / "cluster.toml", tmp_path / "plan.toml")
    assert str(caught.value).startswith(answer)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    path = tmp_path / "cluster.toml"
    with pytest.raises(InputError, match="no such file"):
        load_config(path)
    path.write_bytes(b"\xff")
    with pytest.raises(InputError, match="is not text"):
        load_config(path)
    path.write_text("broker = \n\n")
    with pytest.raises(InputError, match=r"cluster\.toml: is not TOML: .*line 1"):
        load_config(path)
    with pytest.raises(InputError, match="cannot be read"):
        load_config(tmp_path)


def test_what_the_machine_lacks_is_named(tmp_path: Path) -> None:
    config = parse(f"{NATS}nodes.root.journal = 'file:data/root'\nsecurity.token_file = 'token'", tmp_path)
    with pytest.raises(InputError, match=r"nodes\.root\.journal: the folder .*/data' does not exist; make it first"):
        check_machine(config, ["root"])
    (tmp_path / "data").mkdir()
    with pytest.raises(InputError, match=r"security\.token_file: .*/token' is not a file"):
        check_machine(config, ["root"])
    (tmp_path / "token").write_text("secret")
    check_machine(config, ["root"])
    (tmp_path / "data" / "root").write_text("")
    with pytest.raises(InputError, match=r"nodes\.root\.journal: .*/data/root' is not a folder"):
        check_machine(config, ["root"])
    check_machine(config, [])


def test_clusters_in_one_folder_have_their_own_journals() -> None:
    one = parse(f'{NATS}cluster = "shop-eu"\nnodes.root = {{}}')
    other = parse(f'{NATS}cluster = "shop"\nnodes.eu-root = {{}}')
    assert one.journal_folder("root") == Path("journal-shop-eu.root")
    assert other.journal_folder("eu-root") == Path("journal-shop.eu-root")


def test_a_journal_at_the_earlier_default_is_neither_passed_over_nor_taken_by_another_cluster(tmp_path: Path) -> None:
    earlier, now = tmp_path / "journal-root", tmp_path / "journal-shop.root"
    config = parse(f'{ONE}cluster = "shop"', tmp_path)
    check_machine(config, ["root"])
    earlier.mkdir()
    with pytest.raises(InputError) as raised:
        check_machine(config, ["root"])
    assert str(raised.value) == (
        "nodes.root.journal: 'journal-root' exists, the default of earlier versions, and 'journal-shop.root' does not; "
        f"if it belongs to cluster 'shop': mv {earlier} {now}; "
        'if not, name a folder: journal = "file:journal-shop.root"'
    )
    for named in ("file:journal-root", "file:journal-shop.root", "jetstream"):
        check_machine(parse(f'{NATS}cluster = "shop"\nnodes.root.journal = "{named}"', tmp_path), ["root"])
    now.mkdir()
    check_machine(config, ["root"])
    now.rmdir()
    earlier.rename(now)
    check_machine(config, ["root"])


def test_a_node_open_to_all_is_found() -> None:
    assert exposed_without_token(parse(f"{NATS}nodes.root.address = '10.0.0.1:7411'")) == ["root"]
    assert exposed_without_token(parse(f"{NATS}nodes.root.bind = '0.0.0.0:7411'")) == ["root"]
    assert exposed_without_token(parse(f"{NATS}nodes.root.address = '[::1]:7411'")) == []
    assert exposed_without_token(parse(f"{NATS}nodes.root.address = 'a:1'\nsecurity.token_file = 't'")) == []


names = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9-]{0,8}", fullmatch=True).filter(lambda name: name != "none")
text = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
topics = st.from_regex(r"[a-zü\"'%]{1,4}(\.[a-z€-]{1,4}){0,2}", fullmatch=True)
positive = st.floats(min_value=1.0, max_value=1e9)


@st.composite
def configs(draw: st.DrawFn) -> ClusterConfig:
    """Any configuration that passes the checks."""
    nodes = draw(st.lists(names, min_size=1, max_size=5, unique=True))
    ports = draw(st.lists(st.integers(1, 65_535), min_size=len(nodes) + 1, max_size=len(nodes) + 1, unique=True))
    times = Times(**{key: draw(positive) for key in Times.__struct_fields__})
    return ClusterConfig(
        cluster=draw(names),
        broker=f"nats://{draw(names)}:4222",
        mode=draw(st.sampled_from(["log", "ticket"])),
        causal=draw(st.booleans()),
        default_home=draw(st.sampled_from(["", "none", *nodes])),
        nodes={
            name: NodeConfig(
                parent=draw(st.sampled_from(nodes[:index])) if index else None,
                address=(f"127.0.0.1:{ports[index]}",),
                journal=draw(st.sampled_from(["", "memory", "jetstream", f"file:data/{name}"])),
            )
            for index, name in enumerate(nodes)
        },
        homes=draw(st.dictionaries(topics, st.sampled_from(nodes), max_size=5)),
        times=times,
        streams=Streams(replicas=draw(st.integers(1, 5)), max_age_s=draw(positive)),
        security=Security(token_file=draw(text)),
        admin=Admin(address=draw(st.sampled_from(["", f"127.0.0.1:{ports[-1]}"]))),
    )


@given(configs())
def test_what_is_written_out_reads_back_the_same(config: ClusterConfig) -> None:
    assert parse(config_text(config)) == config


@pytest.mark.parametrize("kind", [ClusterConfig, NodeConfig, *TABLES.values()], ids=lambda kind: kind.__name__)
def test_every_key_is_described(kind: type[msgspec.Struct]) -> None:
    for each in msgspec.structs.fields(kind):
        if each.name not in {"nodes", "homes", "folder", "file", "says_tree", *TABLES}:
            assert re.match(r"[a-z\"]", description(each.type)), each.name


# ── the page about it ─────────────────────────────────────────────────────────────────────────────────────────────

PAGE = (Path(__file__).parent.parent.parent / "docs" / "serving.md").read_text(encoding="utf-8")


def rows_of(kind: type[msgspec.Struct], prefix: str) -> list[str]:
    """The rows of the page's table that describe these keys."""
    rows = []
    for each in msgspec.structs.fields(kind):
        if each.name not in {"nodes", "homes", "folder", "file", "says_tree", *TABLES}:
            default = "required"
            if each.default is not msgspec.NODEFAULT:
                default = f"`{json.dumps(each.default)}`" if each.default not in (None, "") else ""
            rows.append(f"| `{prefix}{each.name}` | {default} | {description(each.type)} |")
    return rows


@pytest.mark.parametrize(
    ("kind", "prefix"),
    [(ClusterConfig, ""), (NodeConfig, "nodes.<name>."), *((kind, f"{name}.") for name, kind in TABLES.items())],
)
def test_the_page_describes_every_key_as_it_is(kind: type[msgspec.Struct], prefix: str) -> None:
    for row in rows_of(kind, prefix):
        assert row in PAGE.splitlines(), f"docs/serving.md lacks: {row}"


def test_the_examples_on_the_page_are_right(tmp_path: Path) -> None:
    whole, plan = re.findall(r"```toml\n(.*?)```", PAGE, flags=re.DOTALL)
    (tmp_path / "cluster.toml").write_text(whole)
    (tmp_path / "plan.toml").write_text(plan)
    config = load_config(tmp_path / "cluster.toml", tmp_path / "plan.toml")
    assert config == load_config(tmp_path / "cluster.toml")
    assert config.tree.home("prices.us") == "us"
    assert exposed_without_token(config) == []
