"""How others find a cluster: its processes answer questions on the broker, so nobody has to know an address.

`_<cluster>.describe` is what clients ask first; the command line asks `_<cluster>.status.<node>` and
`_<cluster>.explain.<node>`. Answers are JSON and hold no secrets.
"""

from collections.abc import Iterable

from msgspec import structs

from seriatim.brokers import Broker
from seriatim.model import InputError, Node
from seriatim.protocols.tree import TreeOptions
from seriatim.runtime.description import ClusterDescription, describe_subject, encode_description
from seriatim.server.config import ClusterConfig
from seriatim.server.served import ServedNode
from seriatim.server.status import encode, limited, node_subject


def describe(config: ClusterConfig, options: TreeOptions, served: Iterable[ServedNode]) -> ClusterDescription:
    """The cluster as clients see it. Nodes of this process are described with the ports they really have."""
    addresses: dict[Node, list[str]] = {name: list(node.addresses) for name, node in config.nodes.items()}
    for node in served:
        addresses[node.node][node.place] = node.address
    description = ClusterDescription.of(
        config.cluster,
        config.tree,
        options,
        addresses=addresses,
        buckets=config.streams.buckets,
        broker_options=config.broker_options,
        token_needed=bool(config.security.token_file),
        tls=bool(config.security.certificate),
    )
    if config.order == "tree":
        return description
    ingresses = list(config.playing("ingress"))
    return structs.replace(description, order="atoms", coordinator=config.coordinator, ingresses=ingresses)


def encoded_description(
    broker: Broker, config: ClusterConfig, options: TreeOptions, served: Iterable[ServedNode]
) -> bytes:
    """The answer to clients. InputError: it does not fit into a message."""
    description = encode_description(describe(config, options, served))
    if len(description) > broker.payload_bytes_max:
        problem = f"{len(config.homes)} homes make {len(description)} bytes, and one message may have "
        fix = "let default_home or buckets stand for most of them, or raise the broker's limit (max_payload)"
        raise InputError("homes", f"{problem}{broker.payload_bytes_max}", fix)
    return description


async def answer_questions(broker: Broker, cluster: str, description: bytes, served: Iterable[ServedNode]) -> None:
    """Begin to answer, until the broker is closed."""
    await broker.answer(describe_subject(cluster), lambda _: description)
    for node in served:
        await _answer_for(broker, cluster, node)


async def _answer_for(broker: Broker, cluster: str, node: ServedNode) -> None:
    def status(_: bytes) -> bytes:
        return encode(node.status())

    def status_if_active(_: bytes) -> bytes | None:
        return encode(node.status()) if node.role == "active" else None

    def explain_if_active(_: bytes) -> bytes | None:
        return encode(limited(node.node, node.explain())) if node.role == "active" else None

    await broker.answer(node_subject(cluster, "status", node.node, node.place), status)
    await broker.answer(node_subject(cluster, "status", node.node), status_if_active)
    await broker.answer(node_subject(cluster, "explain", node.node), explain_if_active)
