"""The limits in a cluster's file: those without effect are refused, and the process may open what they promise."""

import resource
from typing import Any

import pytest

from seriatim.model import InputError
from seriatim.server.config import parse_config
from seriatim.server.machine_check import FILES_BESIDE, room_for_connections


def config(**more: Any) -> Any:
    return parse_config({"broker": "nats://127.0.0.1:4222", "nodes": {"root": {}}, **more})


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ({"limits": {"open_tickets_max": 5}}, "limits.open_tickets_max: has no effect in log mode"),
        ({"limits": {"ticket_count_max": 5}}, "limits.ticket_count_max: has no effect in log mode"),
        ({"limits": {"jump_max": 5}}, "limits.jump_max: in log mode only sequencers write stamps"),
        ({"limits": {"kept_events_max": 5}}, "limits.kept_events_max: has no effect in a tree"),
        ({"limits": {"open_tickets_max": 5}, "order": "atoms"}, "limits.open_tickets_max: has no effect with atoms"),
    ],
)
def test_a_limit_without_effect_is_refused(more: dict[str, Any], problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        config(**more)


def test_limits_with_effect_are_taken() -> None:
    limits = {"open_tickets_max": 5, "ticket_count_max": 6, "jump_max": 7}
    options = config(mode="ticket", limits=limits).options
    assert (options.open_tickets_max, options.ticket_count_max, options.jump_max) == (5, 6, 7)


def test_the_process_may_open_as_many_files_as_there_may_be_clients() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    soft, hard = 256, before[1] if before[1] != resource.RLIM_INFINITY else 1_000_000
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, before[1]))
        few = config(limits={"connections_max": 10})
        assert room_for_connections(few, ["root"]) is None
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == 10 + FILES_BESIDE
        many = config(limits={"connections_max": hard})
        lack = room_for_connections(many, ["root"])
        assert lack is not None if before[1] != resource.RLIM_INFINITY else lack is None
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] >= 10 + FILES_BESIDE
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
