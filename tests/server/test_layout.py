"""The layout of a cluster, and the changes that commands make to it."""

import pytest

from seriatim.server.layout import HISTORY_MAX, Change, Layout

LAYOUT = Layout(cluster="shop", order="global", mode="log", parents={"root": None, "eu": "root"})
STANDBY = Change(id="1", kind="addresses", node="eu", addresses=["127.0.0.1:7411", "127.0.0.1:7412"])
LEAF = Change(id="2", kind="add", node="us", parent="root")


def test_new_addresses_leave_the_tree_as_it_was() -> None:
    assert not LAYOUT.is_reshaped
    assert not LAYOUT.begun(STANDBY).is_reshaped and not LAYOUT.begun(STANDBY).finished("now").is_reshaped


@pytest.mark.parametrize("change", [LEAF, Change(id="2", kind="root", node="top", parent="root")])
def test_a_tree_is_reshaped_from_the_moment_that_a_node_is_to_come(change: Change) -> None:
    assert LAYOUT.begun(change).is_reshaped and LAYOUT.begun(change).finished("now").is_reshaped
    assert not LAYOUT.begun(change).abandoned().is_reshaped


def test_a_change_that_is_not_kept_any_more_may_have_been_of_the_tree() -> None:
    layout = LAYOUT.begun(LEAF).finished("now")
    for number in range(HISTORY_MAX):
        layout = layout.begun(Change(id=f"x{number}", kind="addresses", node="eu", addresses=["a:1"])).finished("now")
    assert layout.is_reshaped
