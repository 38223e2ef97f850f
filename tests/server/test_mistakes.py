"""A mistake in a machine's code ends its node, and says so: also a node that has standbys."""

from pathlib import Path

from seriatim.live.server import SequencerServer
from seriatim.server.config import parse_config
from tests.brokers.nats.world import new_cluster, shared_server
from tests.client.world import until


async def test_a_node_with_standbys_that_ends_by_a_mistake_has_failed(tmp_path: Path) -> None:
    """It must not look like one that stands by: nobody would."""

    nodes = {"root": {"address": ["127.0.0.1:0", "127.0.0.1:0"], "journal": "jetstream"}}
    config = parse_config(
        {
            "cluster": new_cluster(),
            "broker": shared_server().url,
            "nodes": nodes,
            "default_home": "root",
            "times": {"takeover_ms": 200.0},
        },
        tmp_path,
    )
    server = SequencerServer(config, ["root"])
    await server.start()
    try:
        served = server.served["root"]
        await until("it is active", lambda: served.role == "active")
        assert served.host is not None
        served.host.driver.end(KeyError("a mistake"))
        await until("it has failed", lambda: served.role == "failed")
        assert served.failed.done()
    finally:
        await server.stop()
