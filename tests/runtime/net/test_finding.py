"""How a dialer finds the nodes: standbys, moves, refusals, several nodes and several addresses."""

import asyncio

import pytest

from seriatim.live.tree import wire
from seriatim.model import ConnectionFailed, InputError
from seriatim.protocols.link import Frame
from seriatim.protocols.machine import Payload
from seriatim.runtime.net.dialer import Dialer, DialerOptions, Peer
from seriatim.runtime.net.security import SecurityOptions
from seriatim.runtime.net.switchboard import Switchboard
from tests.proxy import FaultProxy
from tests.runtime.net.hosts import CLUSTER, QUICK, TREE, WAIT_S, Asker, answering, dialing, serving, until
from tests.waiting import a_moment


async def test_standby_addresses_are_tried_in_turn() -> None:
    """Nobody listens at the first, the second is not active, the third is."""

    async with serving("left") as elsewhere, serving() as active:
        gone = FaultProxy.before(active.address)
        await gone.start()
        dead = gone.address
        await gone.stop()
        async with dialing(dead, elsewhere.address, active.address) as (dialer, asker):
            await dialer.wait_connected("root", WAIT_S)
            asker.ask(1)
            await until(lambda: asker.requests() == [1], "an answer from the third")
            assert elsewhere.clients == 1  # kept: it says when the node comes to run there


@pytest.mark.both_loops
async def test_a_node_that_moves_is_followed() -> None:
    """The servers say which nodes run where, whenever that changes."""

    async with (
        serving("left", "root") as first,
        serving("right") as second,
        dialing(first.address, second.address) as (dialer, asker),
    ):
        await dialer.wait_connected("root", WAIT_S)
        for request in range(1, 6):
            old, new = (first, second) if request % 2 else (second, first)
            old.switchboard.unplug("root")
            answering(new.switchboard, "root")

            def answered(request: int = request) -> bool:
                """What was sent to where the node just ran is lost: machines repeat, and so does this."""
                asker.ask(request)
                return request in asker.requests()

            await until(answered, "an answer from where the node runs now")


async def test_a_standby_without_any_node_refuses_until_it_is_active() -> None:
    async with serving() as listener, dialing(listener.address) as (dialer, asker):
        await dialer.wait_connected("root", WAIT_S)
        listener.switchboard.unplug("root")
        await until(lambda: not dialer.connected("root"), "sent away")
        told = f"{listener.address}: refused: no node is active here"
        await until(lambda: told in dialer.problems()["root"], "refused")
        with pytest.raises(ConnectionFailed, match=told):
            await dialer.wait_connected("root", 0.2)
        answering(listener.switchboard, "root")
        await dialer.wait_connected("root", WAIT_S)
        asker.ask(1)
        await until(lambda: asker.requests() == [1], "an answer")


async def test_what_was_tried_is_told() -> None:
    async with serving("left") as elsewhere, FaultProxy.before(elsewhere.address) as proxy:
        proxy.refuse = True
        closed = FaultProxy.before(elsewhere.address)
        await closed.start()
        address = closed.address
        await closed.stop()
        async with dialing(elsewhere.address, proxy.address, address) as (dialer, _):
            await until(lambda: "not tried yet" not in dialer.problems()["root"], "all were tried")
            with pytest.raises(ConnectionFailed) as caught:
                await dialer.wait_connected("root", 0.5)
            message = str(caught.value)
            assert "not connected after 0.5 s" in message
            assert f"{elsewhere.address}: the node does not run there now" in message
            assert f"{proxy.address}: the connection broke" in message or "the other side closed" in message
            assert f"{address}: connection refused" in message
            assert set(dialer.problems()) == {"root"}


@pytest.mark.parametrize(
    ("problem", "cluster"), [("this is cluster 'test', not 'other'", "other")], ids=["wrong cluster"]
)
async def test_a_refusal_for_good_is_told_at_once_and_not_repeated_in_a_hurry(problem: str, cluster: str) -> None:
    options = DialerOptions(retry_min_s=0.001, retry_max_s=0.002, refused_s=60.0)
    async with (
        serving() as listener,
        dialing(listener.address, cluster=cluster, options=options) as (dialer, _),
    ):
        with pytest.raises(ConnectionFailed, match=problem):
            await asyncio.wait_for(dialer.wait_connected("root", 3600.0), WAIT_S)
        await a_moment()  # in which nothing happens: fifty times the longest pause of other attempts
        assert listener.accepted == 1
        assert listener.refused == {"cluster": 1}


async def test_a_connection_that_never_lasts_is_made_ever_more_slowly() -> None:
    options = DialerOptions(retry_min_s=0.02, retry_max_s=5.0)
    async with serving() as listener, dialing(listener.address, options=options) as (dialer, _):
        loop = asyncio.get_running_loop()
        pauses = []
        for _ in range(5):
            await dialer.wait_connected("root", WAIT_S)
            for guest in list(listener.guests):
                guest.abort("test")
            began = loop.time()
            await until(lambda: not dialer.connected("root"), "cut")
            await dialer.wait_connected("root", WAIT_S)
            pauses.append(loop.time() - began)
        assert pauses[-1] > 0.15  # 0.02 doubled four times is 0.32, and at least half of it


async def test_a_newer_connection_for_the_same_address_replaces_the_older_one() -> None:
    patient = DialerOptions(refused_s=60.0)
    async with serving() as listener, dialing(listener.address, options=patient) as (older, asker):
        await older.wait_connected("root", WAIT_S)
        asker.ask(1)
        await until(lambda: asker.requests() == [1], "an answer")
        async with dialing(listener.address, options=patient) as (newer, other):
            await newer.wait_connected("root", WAIT_S)
            assert older.connected("root")  # the address was not used yet
            other.ask(2)
            await until(lambda: other.requests() == [2], "an answer for the newer one")
            await until(lambda: not older.connected("root"), "the older one is disconnected")
            assert "replaced" in older.problems()["root"]
            other.ask(3)
            await until(lambda: other.requests() == [2, 3], "and another one")
            assert asker.requests() == [1]
            assert listener.clients == 1


async def test_a_node_that_is_not_among_the_peers_is_refused() -> None:
    async with serving() as listener, dialing(listener.address) as (dialer, _):
        with pytest.raises(InputError, match="'left' is not one of root"):
            await dialer.wait_connected("left", 1.0)


async def test_several_nodes_at_one_address_share_a_connection() -> None:
    async with serving("root", "left", "right") as listener:
        switchboard = Switchboard()
        asker = Asker(switchboard, "client")
        peers = [Peer(node, (listener.address,)) for node in ("root", "left", "right")]
        dialer = Dialer(switchboard, peers, cluster=CLUSTER, decoders=wire.TREE, name="client", options=QUICK)
        dialer.start()
        for number, peer in enumerate(peers):
            await dialer.wait_connected(peer.node, WAIT_S)
            asker.ask(number, node=peer.node)
        await until(lambda: len(asker.answers) == 3, "answers of all")
        assert {source for source, _ in asker.answers} == {"root", "left", "right"}
        assert listener.clients == 1
        await dialer.stop()
        await dialer.stop()


async def test_one_connection_is_enough_for_a_server_with_several_addresses() -> None:
    """Else the two would take the client's addresses from each other for ever."""

    switchboard = Switchboard()
    asker = Asker(switchboard, "client")
    async with serving("root", "left", bind=["127.0.0.1:0", "127.0.0.1:0"]) as listener:
        peers = [Peer("root", (listener.addresses[0],)), Peer("left", (listener.addresses[1],))]
        assert peers[0].addresses != peers[1].addresses
        dialer = Dialer(switchboard, peers, cluster=CLUSTER, decoders=wire.TREE, name="client")
        dialer.start()
        try:
            for node in ("root", "left"):
                await dialer.wait_connected(node, WAIT_S)
            await until(lambda: listener.accepted == 2 and listener.clients == 1, "the other one is hung up")
            for request, node in enumerate(("root", "left") * 5):
                asker.ask(request, node=node)
            await until(lambda: asker.requests() == list(range(10)), "answers of both")
            assert listener.clients == 1 and not listener.violations
            (guest,) = listener.guests
            guest.abort("test")
            await until(lambda: not dialer.connected("root"), "cut")
            for node in ("root", "left"):
                await dialer.wait_connected(node, WAIT_S)
        finally:
            await dialer.stop()


async def test_one_address_that_refuses_for_good_does_not_slow_down_the_others() -> None:
    options = DialerOptions(retry_min_s=0.01, retry_max_s=0.1, refused_s=60.0)
    closed = SecurityOptions(token="nobody-knows-this-token")
    async with serving(security=closed) as refusing, serving() as listener:
        async with dialing(refusing.address, listener.address, options=options) as (dialer, _):
            for _ in range(3):
                await dialer.wait_connected("root", WAIT_S)
                for guest in list(listener.guests):
                    guest.abort("test")
                await until(lambda: not dialer.connected("root"), "cut")
        assert refusing.accepted == 1


async def test_of_two_processes_that_run_a_node_the_one_of_the_later_epoch_is_heard() -> None:
    async with serving() as listener:
        peers = [Peer("root", (listener.address,))]
        first, second, third = (
            Dialer(Switchboard(), peers, cluster=CLUSTER, decoders=wire.TREE, name="left", role="node", epoch=epoch)
            for epoch in (3, 4, 3)
        )
        try:
            first.start()
            await first.wait_connected("root", WAIT_S)
            second.start()
            await second.wait_connected("root", WAIT_S)
            await until(lambda: not first.connected("root"), "the earlier epoch is replaced")
            third.start()
            with pytest.raises(ConnectionFailed, match="another process runs node 'left' now, in epoch 4"):
                await third.wait_connected("root", WAIT_S)
            assert second.connected("root") and listener.neighbours == ["left"]
            await second.stop()
            await until(lambda: not listener.neighbours, "it is gone")
            assert listener.refused == {"epoch": 1}
        finally:
            for dialer in (first, second, third):
                await dialer.stop()


@pytest.mark.both_loops
async def test_two_nodes_of_one_process_have_a_connection_each_to_their_parent() -> None:
    """And everything between parent and children goes over the connection the child made."""

    children = Switchboard()
    seen: dict[str, list[tuple[str, Payload]]] = {"root": [], "left": [], "right": []}
    children.attach("left", lambda source, message: seen["left"].append((source, message)))
    children.attach("right", lambda source, message: seen["right"].append((source, message)))
    async with serving() as listener:
        parent = listener.switchboard
        parent.attach("root", lambda source, message: seen["root"].append((source, message)))
        dialers = [
            Dialer(
                children,
                [Peer("root", (listener.address,))],
                cluster=CLUSTER,
                decoders=wire.TREE,
                name=child,
                role="node",
            )
            for child in ("left", "right")
        ]
        for dialer in dialers:
            dialer.start()
            await dialer.wait_connected("root", WAIT_S)
        assert listener.neighbours == ["left", "right"]
        for child in ("left", "right"):
            children.send(child, "root", Frame(1, 1, 0))
            parent.send("root", child, Frame(2, 2, 0))
        await until(lambda: [len(seen[node]) for node in TREE.parents] == [2, 1, 1], "all frames")
        assert {source for source, _ in seen["root"]} == {"left", "right"}
        assert seen["left"] == seen["right"] == [("root", Frame(2, 2, 0))]
        await dialers[0].stop()
        await until(lambda: listener.neighbours == ["right"], "left is gone")
        parent.send("root", "left", Frame(2, 3, 0))
        parent.send("root", "right", Frame(2, 3, 0))
        await until(lambda: len(seen["right"]) == 2, "right is still there")
        await dialers[1].stop()
