"""URLs: what they mean, and what is said about those that mean nothing."""

import subprocess
import sys

import pytest

from seriatim.brokers.memory.broker import MemoryBroker
from seriatim.brokers.nats.core import CoreBroker
from seriatim.brokers.nats.jetstream import JetStreamBroker
from seriatim.brokers.urls import open_broker, shown
from seriatim.model import InputError
from seriatim.protocols.with_broker import Append, Appended
from tests.brokers.conformance import Probe, event


async def test_memory_brokers_of_one_name_are_one() -> None:
    one, other, stranger = [open_broker(f"memory://{name}") for name in ("shop?seed=3", "shop", "else")]
    assert (await Probe(one, "p").ask(Append(event("a", "a1")), Appended)).number == 1
    assert (await Probe(other, "q").ask(Append(event("a", "a2")), Appended)).number == 2
    assert (await Probe(stranger, "p").ask(Append(event("a", "a1")), Appended)).number == 1
    await one.close()
    await one.close()
    assert (await Probe(other, "r").ask(Append(event("a", "a3")), Appended)).number == 3
    await other.close()
    anew = open_broker("memory://shop?seed=4")
    assert (await Probe(anew, "p").ask(Append(event("a", "a1")), Appended)).number == 1
    await anew.close()
    await stranger.close()


async def test_memory_without_a_name_is_shared_with_nobody() -> None:
    one, other = open_broker("memory://"), open_broker("memory://?loss=0.5")
    assert isinstance(one, MemoryBroker) and not one.lossy and other.lossy
    await Probe(one, "p").append("a", "a1")
    assert await Probe(other, "p").append("a", "a1") == [1]


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("shop", "memory://"),
        ("kafka2://host", "scheme we know"),
        ("memory://x?los=1", "did you mean loss"),
        ("memory://x?loss=much", "'much' cannot be read"),
        ("memory://x?loss=2", "not a probability"),
        ("memory://x?seed=1&seed=2", "twice"),
        ("memory://x?keeps_log=maybe", "cannot be read"),
        ("memory://x/y", "path"),
        ("nats://", "not a host and port"),
        ("nats://host:port", "not a host and port"),
        ("nats://a b", "not a host and port"),
        ("nats://host/path", "not a host and port"),
        ("nats://host?streams=many", "'many' cannot be read"),
        ("nats://host?streams=0", "streams"),
        ("nats://host?replicas=7", "replicas"),
        ("nats://host?stream=7", "did you mean streams"),
        ("nats://host?creds=/no/such/file", "no file /no/such/file"),
        ("nats://user:pw@host?token=x", "more than one"),
        ("nats://host?cluster=a.b", "cluster"),
        ("nats+core://host?streams=4", "no such option"),
    ],
)
def test_bad_urls_are_explained(url: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        open_broker(url)


def test_nats_urls_name_servers_identity_and_options() -> None:
    broker = open_broker("nats://me:p%40ss@one,two:5000?streams=64&replicas=3&cluster=prod&max_age_s=3600", pace_ms=5)
    assert isinstance(broker, JetStreamBroker)
    assert broker.link.servers == ["nats://one:4222", "nats://two:5000"]
    assert (broker.link.credentials.user, broker.link.credentials.password) == ("me", "p@ss")
    assert (broker.names.cluster, broker.names.buckets, broker.pace_ms) == ("prod", 64, 5)
    assert (broker.streams.options.replicas, broker.streams.options.max_age_s) == (3, 3600.0)
    core = open_broker("tls+core://secret@[::1]:4222", name="me")
    assert isinstance(core, CoreBroker)
    assert core.link.servers == ["tls://[::1]:4222"] and core.link.credentials.token == "secret"


def test_keywords_win_over_the_url() -> None:
    broker = open_broker("nats://host?streams=64", streams="topic", token="t")
    assert isinstance(broker, JetStreamBroker) and broker.names.buckets == 0


WITHOUT_NATS = """
import sys
sys.modules["nats"] = None
from seriatim.brokers import open_broker
open_broker("nats://host")
"""


def test_a_missing_client_library_says_how_to_get_it() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT_NATS], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert 'InputError: url: the client library for NATS is missing; pip install "seriatim[nats]"' in done.stderr


async def test_a_shared_broker_keeps_its_first_options() -> None:
    broker = open_broker("memory://lossy", loss=0.1)
    with pytest.raises(InputError, match="is open already"):
        open_broker("memory://lossy?loss=0.2")
    with pytest.raises(InputError, match="is open already"):
        open_broker("memory://lossy?seed=2")
    await broker.close()


def test_secrets_are_not_shown() -> None:
    assert shown("nats://me:secret@one:1,two:2?streams=4&token=x") == "nats://one:1,two:2?streams=4"
    assert shown("memory://name") == "memory://name"
