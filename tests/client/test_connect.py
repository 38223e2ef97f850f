"""`connect`: arguments, `memory://`, and finding the sequencers of a real cluster."""

import asyncio
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from msgspec import structs

import seriatim
from seriatim.brokers.memory.broker import MemoryBroker
from seriatim.client.brokered.discovery import broker_options, check_description, find_description, without_password
from seriatim.client.settings import Settings
from seriatim.model import ConnectionFailed, InputError, RemoteError
from seriatim.order import SequencingTree
from seriatim.protocols.tree import TreeOptions
from seriatim.runtime.net.security import SecurityOptions
from seriatim.server.description import (
    ClusterDescription,
    decode_description,
    describe_subject,
    encode_description,
)
from tests.client.world import data, take, until


@pytest.mark.parametrize(
    ("url", "options", "problem"),
    [
        ("127.0.0.1:4222", {}, "is not a URL"),
        (7, {}, "is not a URL"),
        ("memory://", {"mode": "chaos"}, "mode: unknown mode 'chaos'"),
        ("memory://", {"name": "a b"}, "name: 'a b' is not a name"),
        ("memory://", {"cluster": ""}, "cluster"),
        ("memory://", {"timeout_s": 0}, "timeout_s: 0 is not a time"),
        ("nats://h", {"sequencers": "h:1"}, r"sequencers: expected a list, got a string; give \['h:1'\]"),
        ("nats://h", {"sequencers": ["h"]}, "'h' is not an address"),
        ("memory://", {"gaps": "skip"}, "expected a GapPolicy"),
    ],
)
def test_arguments_are_checked_at_once(url: Any, options: dict[str, Any], problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        seriatim.connect(url, **options)


def test_limits_are_checked() -> None:
    with pytest.raises(InputError, match=r"limits\.queue_events: 0 is not positive"):
        seriatim.Limits(queue_events=0)


def test_import_is_light_and_knows_its_names() -> None:
    program = "import seriatim, sys; print(sum(name.startswith('seriatim') for name in sys.modules))"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, check=True).stdout == b"1\n"
    for name in seriatim.__all__:
        assert getattr(seriatim, name).__name__ == name
    with pytest.raises(AttributeError, match="no attribute 'publish'"):
        seriatim.publish  # noqa: B018


async def test_buses_of_one_name_share_a_cluster_until_the_last_one_leaves() -> None:
    async with seriatim.connect("memory://shop") as one:
        async with seriatim.connect("memory://shop") as two, two.subscribe("a") as events:
            await one.publish("a", b"1")
            assert data(await take(events, 1)) == ["1"]
        assert (await one.publish("a", b"2")).number == 2
    async with seriatim.connect("memory://shop") as anew:
        assert (await anew.publish("a", b"1")).number == 1


async def test_a_durable_subscription_on_memory_survives_its_bus() -> None:
    async with seriatim.connect("memory://shop") as bus:
        async with seriatim.connect("memory://shop") as other, other.subscribe("a", durable="d") as events:
            await bus.publish("a", b"1")
            assert data(await take(events, 1)) == ["1"]
            await events.acknowledge()
        await bus.publish("a", b"2")
        async with bus.subscribe("a", durable="d") as events:
            assert data(await take(events, 1)) == ["2"]


async def test_buses_without_a_name_have_clusters_of_their_own() -> None:
    async with seriatim.connect("memory://") as one, seriatim.connect("memory://") as two:
        assert (await one.publish("a", b"1")).number == (await two.publish("a", b"1")).number == 1


async def test_many_join_while_the_cluster_is_starting() -> None:
    everybody = asyncio.Barrier(10)  # the cluster goes when the last one leaves

    async def number() -> int:
        async with seriatim.connect("memory://busy") as bus:
            number = (await bus.publish("a", b"x")).number
            await everybody.wait()
            return number

    assert sorted(await asyncio.gather(*(number() for _ in range(10)))) == list(range(1, 11))


async def test_a_running_cluster_has_its_ways() -> None:
    async with seriatim.connect("memory://strict?seed=4", mode="ticket") as bus:
        with pytest.raises(InputError, match="memory://strict runs with mode 'ticket', not 'log'"):
            await seriatim.connect("memory://strict", mode="log").__aenter__()
        with pytest.raises(InputError, match="options 'seed=4', not 'seed=5'"):
            await seriatim.connect("memory://strict?seed=5").__aenter__()
        async with seriatim.connect("memory://strict") as other:
            assert (await other.publish("a", b"x")).number == 1
        assert (await bus.publish("a", b"x")).number == 2


@pytest.mark.parametrize(
    ("url", "options", "problem"),
    [
        ("memory://?loss=0.5", {"mode": "log"}, "log mode is not possible: this broker loses events"),
        ("memory://?keeps_log=no", {"mode": "log"}, "log mode is not possible"),
        ("memory://", {"mode": "log", "causal": True}, "own order across topics \\(causal=True\\) needs tickets"),
        ("memory://?lose=0.5", {}, "did you mean loss"),
        ("carrier-pigeon://h", {}, "scheme"),
    ],
)
async def test_impossible_wishes_are_refused_when_connecting(url: str, options: dict[str, Any], problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        async with seriatim.connect(url, **options):
            pass
    async with seriatim.connect("memory://") as bus:
        assert (await bus.publish("a", b"x")).number == 1


# ── descriptions ──────────────────────────────────────────────────────────────────────────────────────────────────


def settings(**options: Any) -> Settings:
    return Settings(url="nats://user:secret@h:4222?token=x", **options)


def description(**options: Any) -> ClusterDescription:
    tree = SequencingTree.star({"a": 1, "b": 2}, 2)
    described = ClusterDescription.of("shop", tree, TreeOptions(mode="ticket", order="global", jump_max=7))
    return structs.replace(described, **options)


def test_a_description_comes_back_as_it_was() -> None:
    told = description(addresses={"n0": ["h:1", "h:2"]}, buckets=8, token_needed=True, tls=True)
    found = decode_description(encode_description(told))
    assert found == told
    assert found.tree.home("a") == "n1"
    assert (found.options.mode, found.options.order, found.options.jump_max) == ("ticket", "global", 7)


@pytest.mark.parametrize("answer", [b"", b"{}", b"\xff", b'{"cluster": "x", "parents": {"n": null}, "mode": "chaos"}'])
def test_an_answer_that_is_no_description_is_an_error(answer: bytes) -> None:
    with pytest.raises(RemoteError, match="cannot be read"):
        decode_description(answer)


def test_a_description_of_another_version_says_what_to_do() -> None:
    with pytest.raises(RemoteError, match="version 4, this client reads 3; install the same release"):
        decode_description(b'{"cluster": "x", "parents": {"n": null}, "version": 4}')
    for version in (1, 2, 3):  # without topics that have moved, with them, and with nodes that came or went
        read = decode_description(b'{"cluster": "x", "parents": {"n": null}, "version": %d}' % version)
        assert read.version == version


async def test_sequencers_are_found_once_they_answer() -> None:
    class Asked(MemoryBroker):
        questions = 0

        async def request_all(self, *question: Any) -> list[bytes]:
            self.questions += 1
            return await super().request_all(*question)

    broker = Asked()
    asking = asyncio.ensure_future(find_description(broker, settings(cluster="shop", timeout_s=60.0)))
    await until("nobody has answered once", lambda: broker.questions == 1)
    reply: Callable[[bytes], bytes] = lambda question: encode_description(description())  # noqa: E731
    await broker.answer(describe_subject("shop"), reply)
    assert (await asking).cluster == "shop"


async def test_nobody_answers() -> None:
    expected = (
        r"no sequencer answers for cluster 'shop' on nats://h:4222 \(asked on _shop\.describe for 0\.1 s\); "
        r"start one with `seriatim serve` or `seriatim up`"
    )
    with pytest.raises(ConnectionFailed, match=expected):
        await find_description(MemoryBroker(), settings(cluster="shop", timeout_s=0.1))


@pytest.mark.parametrize(
    ("wishes", "problem"),
    [
        ({"mode": "log"}, "cluster shop runs in ticket mode"),
        ({"causal": True}, "cluster shop does not keep each publisher's own order across topics"),
        ({"order": "pairwise"}, "order: cluster shop keeps global order"),
        ({"order": "atoms"}, "order: cluster shop keeps global order"),
        ({}, "token: the sequencers of shop require one"),
    ],
)
def test_the_cluster_must_be_what_was_asked_for(wishes: dict[str, Any], problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        check_description(description(token_needed=True), settings(**wishes))
    check_description(description(), settings(mode="ticket", order="global", causal=False))
    check_description(description(causal=True), settings(mode="ticket", causal=True))
    with pytest.raises(InputError, match="order: cluster shop orders by atoms"):
        check_description(description(sequenced_by="atoms"), settings())
    with pytest.raises(InputError, match=r"url: cluster shop runs in log mode, .*; use nats://"):
        check_description(description(mode="log"), structs.replace(settings(), url="nats+core://h:4222"))


@pytest.mark.parametrize(
    ("said", "order", "own_order"),
    [
        ({}, "pairwise", False),
        ({"order": "tree", "causal": True}, "global", True),
        ({"order": "tree", "causal": False}, "pairwise", False),
    ],
)
def test_the_description_of_an_earlier_version_means_what_it_meant(
    said: dict[str, Any], order: str, own_order: bool
) -> None:
    told = decode_description(msgspec.json.encode({"cluster": "shop", "parents": {"root": None}, **said}))
    assert (told.order, told.options.order, told.options.own_order) == (order, order, own_order)
    check_description(told, settings())
    check_description(told, settings(causal=own_order))
    with pytest.raises(InputError, match=f"order: cluster shop keeps {order} order"):
        check_description(told, settings(order="pairwise" if order == "global" else "global"))


def test_earlier_clients_can_read_a_description_of_today() -> None:
    told = msgspec.json.decode(encode_description(description()))
    assert (told["order"], told["causal"], told["tree_order"]) == ("tree", False, "global")


def test_older_words_are_read_and_told(caplog: pytest.LogCaptureFixture) -> None:
    assert settings(order="tree").order is None
    said = "older keyword: keyword=order argument_of=connect meaning="
    assert f'{said}order "tree" is an older keyword and means "global" now' in caplog.text
    caplog.clear()
    assert settings(causal=True).order == "global"
    assert "global order needs no causal = true" in caplog.text
    caplog.clear()
    assert settings(order="atoms", causal=True).order == "atoms"
    assert settings(order="pairwise").order == "pairwise"
    assert not caplog.text
    with pytest.raises(InputError, match="causal: pairwise order does not order topics that one subscription alone"):
        settings(order="pairwise", causal=True)


def test_the_cluster_says_how_topics_lie_on_the_broker() -> None:
    told = description(buckets=8, broker_options={"replicas": 3})
    assert broker_options(told, settings()) == {"streams": 8, "replicas": 3}
    with_url = structs.replace(settings(), url="nats://h?streams=8&max_age_s=5")
    assert broker_options(told, with_url) == {"replicas": 3}
    with pytest.raises(InputError, match="cluster shop uses streams=8, the URL says 9"):
        broker_options(told, structs.replace(settings(), url="nats://h?streams=9"))
    assert broker_options(description(), settings()) == {}


def test_how_to_be_let_in() -> None:
    token = "0123456789abcdef"
    assert settings(token=token).security == SecurityOptions(token=token)
    assert settings(tls=True).security == SecurityOptions(tls=True)
    assert settings(tls=SecurityOptions(tls=True), token=token).security == SecurityOptions(tls=True, token=token)


def test_secrets_stay_out_of_errors() -> None:
    assert without_password("nats://user:secret@h:4222?token=x") == "nats://h:4222"
