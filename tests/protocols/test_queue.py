"""The queue, against a plain list."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from seriatim.protocols.queue import Queue

operations = st.one_of(
    st.tuples(st.just("append"), st.integers(0, 9)),
    st.tuples(st.just("take"), st.integers(0, 5)),
    st.tuples(st.just("remove"), st.integers(0, 3)),
)


@given(st.lists(operations, max_size=60))
def test_a_queue_is_a_list_that_is_taken_from_in_front(run: list[tuple[str, int]]) -> None:
    queue: Queue[int] = Queue()
    model: list[int] = []
    for what, number in run:
        if what == "append":
            queue.append(number)
            model.append(number)
        elif what == "take":
            assert queue.take(number) == model[:number]
            model = model[number:]
        elif number < len(model):
            queue.remove(number)
            del model[number]
        assert (list(queue), len(queue), bool(queue)) == (model, len(model), bool(model))
        if model:
            assert queue.first == model[0]
        queue = msgspec.msgpack.decode(msgspec.msgpack.encode(queue), type=Queue[int])
        assert len(queue.items) <= 2 * len(model)


def test_what_is_taken_one_by_one_is_moved_once() -> None:
    queue: Queue[int] = Queue(list(range(1_000)))
    lengths = set()
    while queue:
        queue.take()
        lengths.add(len(queue.items))
    assert len(lengths) < 15, "the list was cut only when half of it was gone"


def test_a_removed_item_lets_go_of_those_that_were_taken() -> None:
    queue: Queue[int] = Queue([0, 1, 2])
    assert queue.take() == [0]
    queue.remove(0)
    queue.remove(0)
    assert (len(queue), queue.items) == (0, [])
