"""Errors name the field and the fix, and say whose fault it is by their class."""

import pytest

from seriatim.model import InputError, LogError, RemoteError, SeriatimError, TreeError, UnknownTopic


def test_the_message_names_field_problem_and_fix() -> None:
    error = InputError("count", "-3 is negative", "give 1 or more")
    assert str(error) == "count: -3 is negative; give 1 or more"
    assert (error.field, error.problem, error.fix) == ("count", "-3 is negative", "give 1 or more")


def test_an_unknown_topic_is_named() -> None:
    error = UnknownTopic("orders")
    assert error.topic == "orders"
    assert str(error).startswith("topic 'orders': ")


@pytest.mark.parametrize("kind", [TreeError, UnknownTopic, LogError])
def test_bad_values_are_input_errors_and_value_errors(kind: type[Exception]) -> None:
    assert issubclass(kind, InputError)
    assert issubclass(kind, ValueError)


def test_the_other_side_s_fault_is_not_bad_input() -> None:
    assert issubclass(RemoteError, SeriatimError)
    assert not issubclass(RemoteError, InputError)
