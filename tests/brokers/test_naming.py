"""Names: the same bucket for all time, different streams for different topics."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seriatim.brokers.naming import Names, bucket_of, check_topic, escape, is_bucket, ordered_topic
from seriatim.model import InputError

words = st.text(st.characters(exclude_characters=".*>", exclude_categories=["Z", "C"]), min_size=1, max_size=8)
topics = st.lists(words, min_size=1, max_size=4).map(".".join).filter(lambda topic: topic[0] not in "$_")


def test_buckets_are_for_ever() -> None:
    """What is stored under these names must be found by every later version."""
    assert [bucket_of(topic, 64) for topic in ("orders", "payments.eu", "größe")] == [
        "bucket-013",
        "bucket-009",
        "bucket-041",
    ]
    assert ordered_topic("orders", 0) == "orders"
    assert ordered_topic("bucket-017", 64) == "bucket-017", "a bucket is ordered as itself"
    assert bucket_of("bucket-99", 64) != "bucket-99"


@given(topics, st.integers(1, 4_096))
def test_every_topic_has_a_bucket(topic: str, buckets: int) -> None:
    check_topic(topic)
    assert is_bucket(bucket_of(topic, buckets), buckets)


@given(topics, topics)
def test_different_names_stay_different(one: str, other: str) -> None:
    assert (escape(one) == escape(other)) == (one == other)
    assert not set(escape(one)) & set(". */\\>")


def test_names_of_streams_and_subjects() -> None:
    names = Names("prod")
    assert escape("größe.a+b%_-") == "gr%C3%B6%C3%9Fe+a%2Bb%25_-"
    assert names.log_stream("orders.new") == "prod-topic-orders+new"
    assert names.log_subject("orders.new") == "orders.new"
    assert names.stamps_subject("root", "orders.new") == "_prod.stamps.root.orders+new"
    assert names.stamps_subject("root") == "_prod.stamps.root.*"
    assert Names("prod", 64).log_stream("bucket-017") == "prod-bucket-017"
    with pytest.raises(InputError, match="240"):
        names.log_stream("ö" * 100)


@pytest.mark.parametrize("cluster", ["", "a.b", "a b", "_x", "inbox", "x" * 33])
def test_bad_clusters_are_refused(cluster: str) -> None:
    with pytest.raises(InputError, match="cluster"):
        Names(cluster)
