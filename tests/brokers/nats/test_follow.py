"""Following stamps on NATS: messages that a plain subscription loses, or gets from others."""

import json

from seriatim.brokers.nats.messages import encode_stamps
from seriatim.model import RequestRefused
from seriatim.protocols.with_broker import Append, Appended, Follow, Kept, Stamped, StampedTo, Watch
from tests.brokers.conformance import HOME, Probe, event, probes
from tests.brokers.nats.world import jetstream_world


async def test_what_a_consumer_delivers_to_the_stamp_subject_is_not_believed() -> None:
    """Whoever may create consumers chooses where they deliver, also without the right to publish there."""
    async with jetstream_world() as world, probes(world, "p", HOME) as (publisher, home):
        await publisher.append("a", "a1", "a2")
        await home.ask(Stamped("a", 1, 1, {}, 1), Kept)
        assert await publisher.ask(Follow("a"), StampedTo) == StampedTo("a", 1)
        names = publisher.broker.names  # type: ignore[attr-defined]
        plain = await world.plain_client()
        subject = names.stamps_subject(HOME, "a")
        seen = await plain.subscribe(subject)
        await plain.flush()
        forged = encode_stamps([Stamped("a", 2, 1_000, {}, 1)])
        stream = names.log_stream("b")
        await publisher.ask(Append(event("b", "forged", forged)), Appended)
        wish = {"name": "forger", "deliver_subject": subject, "ack_policy": "none"}
        question = json.dumps({"stream_name": stream, "config": wish}).encode()
        await plain.request(f"$JS.API.CONSUMER.CREATE.{stream}.forger", question, timeout=60)
        assert (await seen.next_msg(timeout=60)).data == forged, "it is delivered"
        await home.ask(Stamped("a", 2, 2, {}, 1), Kept)
        await publisher.until(lambda: StampedTo("a", 2) in publisher.got, "the real stamp")
        assert publisher.of(StampedTo) == [StampedTo("a", 1), StampedTo("a", 2)]
        await plain.close()


async def test_what_is_no_stamp_is_ignored() -> None:
    async with jetstream_world() as world, probes(world, "p", HOME) as (publisher, home):
        await publisher.append("a", "a1")
        await publisher.ask(Follow("a"), StampedTo)
        plain = await world.plain_client()
        subject = publisher.broker.names.stamps_subject(HOME, "a")  # type: ignore[attr-defined]
        for nonsense in (b"", b"nonsense", b"\x90", encode_stamps([])):
            await plain.publish(subject, nonsense)
        await plain.flush()
        assert await publisher.ask(Follow("a"), StampedTo, patience_s=60.0)
        assert {each.last for each in publisher.of(StampedTo)} == {0}
        assert publisher.errors == [] == home.errors
        await plain.close()


async def test_stamps_of_a_log_that_is_gone_say_nothing_about_the_one_that_is_there() -> None:
    async with jetstream_world() as world, probes(world, "p", HOME) as (publisher, home):
        await publisher.append("a", "a1", "a2", "a3")
        home.send(Watch(frozenset({"a"})))  # the home names the log in its stamps
        await home.until(lambda: home.of(Stamped) or home.got, "the length of the log")
        await home.ask(Stamped("a", 1, 3, {}, 1), Kept)
        assert await publisher.ask(Follow("a"), StampedTo) == StampedTo("a", 3)
        plain = await world.plain_client()
        stream = publisher.broker.names.log_stream("a")  # type: ignore[attr-defined]
        config = (await plain.jetstream().stream_info(stream)).config
        await plain.jetstream().delete_stream(stream)
        await plain.jetstream().add_stream(config)
        for each in (publisher, Probe(await world.connect(), "late")):
            await each.append("a", *[f"{each.port.address}{n}" for n in range(4)])
            each.clear()
            each.send(Follow("a"))
            await each.until(lambda each=each: each.errors, "it is refused")  # type: ignore[misc]
            message, error = each.errors[-1]
            assert message == Follow("a") and isinstance(error, RequestRefused)
            assert "was deleted and created again" in str(error)
            assert each.of(StampedTo) == []
        await plain.close()
