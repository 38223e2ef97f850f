"""JetStream passes the suite that every broker passes: a stream per topic, buckets, and slots."""

from seriatim.brokers.nats.listen import slot_subject
from seriatim.brokers.nats.messages import encode_slot
from seriatim.protocols.with_broker import Delivered, Listen, Listening, Write, Written
from tests.brokers.conformance import Conformance, event, probes
from tests.brokers.nats.slots import SlotConformance
from tests.brokers.nats.world import jetstream_world


class TestTopics(Conformance):
    has_journals = has_rows = has_replay = has_order_log = has_lives = True

    def world(self):  # type: ignore[no-untyped-def]
        return jetstream_world()


class TestBuckets(Conformance):
    has_journals = has_rows = has_replay = has_order_log = has_lives = True

    def world(self):  # type: ignore[no-untyped-def]
        return jetstream_world(streams=16)


class TestSlots(SlotConformance):
    has_journals = has_rows = has_replay = has_order_log = has_lives = True

    def world(self):  # type: ignore[no-untyped-def]
        return jetstream_world(mode="ticket")


async def test_a_number_has_one_slot() -> None:
    """Whoever may write slots may write to any subject below; only one of them is the place of a number."""

    async with jetstream_world(mode="ticket") as world, probes(world, "p", "s") as (publisher, subscriber):
        await subscriber.ask(Listen("a", None, 1), Listening)
        plain = await world.plain_client()
        forged = encode_slot(Write("a", 9_000, {}, event("a", "forged")))
        places = slot_subject(world.brokers[0].names, "a", 9_000).rpartition(".1.")
        for place in ("0.9000", "7.9000", "1.09000", "1.1.9000"):
            await plain.jetstream().publish(f"{places[0]}.{place}", forged)
        await publisher.ask(Write("a", 9_000, {}, event("a", "real")), Written)
        await subscriber.until(lambda: subscriber.of(Delivered), "the slot")
        assert subscriber.ids("a") == ["real"]
        await plain.close()
