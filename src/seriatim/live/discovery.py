"""How others find a cluster: its processes answer questions on the broker, so nobody needs to know an address.

Clients ask `_<cluster>.describe` first; the command line asks `_<cluster>.status.<node>` and
`_<cluster>.explain.<node>`. Answers are JSON and hold no secrets. On a broker without request and
reply the description is a record under the same name.
"""

from collections.abc import Iterable
from typing import Any

from msgspec import structs
from msgspec.json import encode

from seriatim.brokers import Broker
from seriatim.brokers.capabilities import Requests, required
from seriatim.live.served import Served
from seriatim.model import InputError, Node
from seriatim.protocols.tree import TreeOptions
from seriatim.server.config import ClusterConfig
from seriatim.server.description import ClusterDescription, describe_subject, encode_description
from seriatim.server.status import limited, node_subject


def encoded_description(
    broker: Broker, config: ClusterConfig, options: TreeOptions, served: Iterable[Served[Any]]
) -> bytes:
    """The cluster as clients see it; nodes of this process with their real ports. InputError: it does not fit into a
    message."""
    addresses: dict[Node, list[str]] = {name: list(node.addresses) for name, node in config.nodes.items()}
    for node in served:
        addresses[node.node][node.place] = node.address
    described = structs.replace(
        ClusterDescription.of(config.cluster, config.tree, options),
        addresses=addresses,
        buckets=config.streams.buckets,
        broker_options=config.broker_options,
        token_needed=bool(config.security.token_file),
        tls=bool(config.security.certificate),
    )
    if config.order == "atoms":
        ingresses = list(config.playing("ingress"))
        described = structs.replace(described, order="atoms", coordinator=config.coordinator, ingresses=ingresses)
    description = encode_description(described)
    if len(description) > broker.payload_bytes_max:
        problem = f"{len(config.homes)} homes make {len(description)} bytes, and one message may have "
        fix = "use default_home or buckets for most of them, or raise the broker's limit (max_payload)"
        raise InputError("homes", f"{problem}{broker.payload_bytes_max}", fix)
    return description


async def answer_questions(broker: Broker, cluster: str, description: bytes, served: Iterable[Served[Any]]) -> None:
    """Answer from now on, until the broker is closed. Where clients cannot ask, the description is a record."""
    if (requests := broker.requests) is None:
        fix = "use a broker with request and reply, or with records"
        records = required(broker.records, "broker", "has no way for clients to find the sequencers", fix)
        await records.keep(describe_subject(cluster), description)
        return
    await requests.answer(describe_subject(cluster), lambda _: description)
    for node in served:
        await _answer_for(requests, cluster, node)


async def _answer_for(broker: Requests, cluster: str, node: Served[Any]) -> None:
    """In JSON, so that people can ask too (`nats request _seriatim.status.root ''`)."""

    def status(_: bytes) -> bytes:
        return encode(node.status())

    def status_if_active(_: bytes) -> bytes | None:
        return encode(node.status()) if node.role == "active" else None

    def explain_if_active(_: bytes) -> bytes | None:
        return encode(limited(node.node, node.explain())) if node.role == "active" else None

    await broker.answer(node_subject(cluster, "status", node.node, node.place), status)
    await broker.answer(node_subject(cluster, "status", node.node), status_if_active)
    await broker.answer(node_subject(cluster, "explain", node.node), explain_if_active)
