"""The private names of nats-py that we use. A release that changes one is named here before anything fails in use."""

import inspect
from importlib import import_module
from importlib.metadata import version

import pytest
from nats.aio.client import Client
from nats.aio.transport import TcpTransport

from seriatim.brokers.nats.client import PRIVATE_NAMES, TolerantClient
from seriatim.brokers.nats.server import NatsServer

USED = [(owner, name) for owner, names in PRIVATE_NAMES.items() for name in names]
ADVICE = "read its changes, correct brokers/nats/client.py, then allow this release in pyproject.toml"


@pytest.mark.parametrize(("owner", "name"), USED)
def test_nats_py_still_has_this_private_name(owner: str, name: str) -> None:
    module, _, kind = owner.rpartition(".")
    found = getattr(import_module(module), kind)()
    assert hasattr(found, name), f"nats-py {version('nats-py')} has no {owner}.{name} any more; {ADVICE}"


def test_headers_are_parsed_where_we_replace_it() -> None:
    message = f"nats-py {version('nats-py')} calls {{}} in another way; {ADVICE}"
    process = inspect.signature(Client._process_headers)
    assert list(process.parameters) == ["self", "headers"], message.format("Client._process_headers")
    assert inspect.iscoroutinefunction(Client._process_headers), message.format("Client._process_headers")
    parse = inspect.getattr_static(Client, "_parse_header_lines")
    assert isinstance(parse, staticmethod), message.format("Client._parse_header_lines")
    assert list(inspect.signature(parse).parameters) == ["raw"], message.format("Client._parse_header_lines")


async def test_a_connection_has_what_we_look_at() -> None:
    message = f"nats-py {version('nats-py')} keeps something else in {{}}; {ADVICE}"
    async with NatsServer() as server:
        client = TolerantClient()
        await client.connect(servers=[server.url])
        assert client._reading_task is not None and not client._reading_task.done(), message.format("_reading_task")
        assert isinstance(client._transport, TcpTransport), message.format("_transport")
        assert client._transport._io_writer is not None, message.format("_io_writer")
        assert not client.is_encrypted
        await client.close()
        assert client._reading_task.done(), message.format("_reading_task")
