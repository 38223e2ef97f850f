"""The options that each kind of bus refuses: one table, with the reason and what to do instead.

A key is an option (an argument of `connect` or `subscribe`, or a method of a bus or subscription) and a kind. A cell
says which values are refused. A missing cell means that the option works for that kind. `tests/client/
test_refusals.py` tries every cell, and every missing one.
"""

from collections.abc import Callable, Mapping
from typing import Literal, TypeAlias

from msgspec import Struct

from seriatim.brokers.capabilities import BROKER
from seriatim.client.options import GapPolicy
from seriatim.model import InputError

Substrate: TypeAlias = Literal["tree", "atoms", "peers", "overlay"]

WHERE: dict[Substrate, str] = {
    "tree": 'order="global"',
    "atoms": 'order="atoms"',
    "peers": "vcube://",
    "overlay": "overlay://",
}


class Refusal(Struct, frozen=True):
    """`refuses`: whether a value of the option is refused."""

    refuses: Callable[[object], bool]
    reason: str
    instead: str = "leave it out"


def _given(value: object) -> bool:
    return value is not None


def _is(*refused: object) -> Callable[[object], bool]:
    return lambda value: value in refused


def _other_than(*accepted: object) -> Callable[[object], bool]:
    return lambda value: value not in accepted


def _has_time(value: object) -> bool:
    return isinstance(value, GapPolicy) and value.after_s is not None


_TREE = "leave it out, or use a tree"
_BROKER = "leave it out, or use a broker"
_FOLDER = "give a folder"
_NO_WAIT = _other_than(None, GapPolicy.wait())
_NOT_DURABLE = "only durable subscriptions remember what was acknowledged"

CONNECT: dict[str, dict[Substrate, Refusal]] = {
    "mode": {
        "atoms": Refusal(_given, "atoms give the numbers"),
        "peers": Refusal(_given, "peers give no numbers"),
        "overlay": Refusal(_given, "the overlay's file says how it orders"),
    },
    "causal": {
        "peers": Refusal(_is(False), "peers always keep causal order"),
        "overlay": Refusal(_given, "the overlay's file says how it orders"),
    },
    "confirm": {
        "peers": Refusal(_given, "an event is confirmed when every member has it"),
        "overlay": Refusal(_given, "an event is confirmed when the first broker has it"),
    },
    "own_order": {
        "peers": Refusal(_is(True), "peers order each topic separately", _BROKER),
        "overlay": Refusal(_is(True), "the overlay's file says how it orders"),
    },
    "name": {"peers": Refusal(_given, "a peer is called by its id")},
    "stamp_key": {
        "atoms": Refusal(_given, "stamps of atoms are not signed"),
        "peers": Refusal(_given, "peers use no stamps"),
        "overlay": Refusal(_given, "an overlay uses no stamps"),
    },
    "sequencers": {
        "peers": Refusal(_given, "peers need no sequencers"),
        "overlay": Refusal(_given, "an overlay needs no sequencers"),
    },
    "gaps": {
        "atoms": Refusal(_NO_WAIT, "atoms never skip an event"),
        "peers": Refusal(_NO_WAIT, "peers never skip an event"),
        "overlay": Refusal(_has_time, "an overlay reports a gap immediately", "leave out after_s"),
    },
    "journals": {
        "atoms": Refusal(_given, "there are no durable subscriptions"),
        "overlay": Refusal(_given, "a client of an overlay remembers nothing across a restart"),
    },
    "publication_log": {
        "peers": Refusal(_is(BROKER), "there is no broker to keep it", _FOLDER),
        "overlay": Refusal(_is(BROKER), "brokers of an overlay keep no logs", _FOLDER),
    },
}

SUBSCRIBE: dict[str, dict[Substrate, Refusal]] = {
    "topics": {
        "tree": Refusal(_is(()), "no topic is named", "name at least one"),
        "atoms": Refusal(_is(()), "no topic is named", "name at least one"),
        "peers": Refusal(_is(()), "no topic is named", "name at least one"),
    },
    "durable": {
        "atoms": Refusal(_given, "receivers keep no journal: after a restart this is another member", _TREE),
        "peers": Refusal(_given, "peers do not keep what was published before", _BROKER),
        "overlay": Refusal(_given, "a client of an overlay remembers nothing across a restart"),
    },
    "ordered": {
        "atoms": Refusal(_is(False), "members get everything in order", _TREE),
        "peers": Refusal(_is(False), "peers order everything", _BROKER),
        "overlay": Refusal(_is(False), "an overlay orders everything"),
    },
    "gaps": {
        "atoms": Refusal(_NO_WAIT, "atoms never skip an event", _TREE),
        "peers": Refusal(_NO_WAIT, "peers never skip an event", _BROKER),
        "overlay": Refusal(
            _other_than(None, GapPolicy.skip(), GapPolicy.raise_()),
            "an overlay reports a gap immediately",
            "leave it out, or use GapPolicy.skip() or GapPolicy.raise_()",
        ),
    },
    "acknowledge": {
        "atoms": Refusal(_other_than("next"), _NOT_DURABLE, _TREE),
        "peers": Refusal(_other_than("next"), _NOT_DURABLE, _BROKER),
        "overlay": Refusal(_other_than("next"), _NOT_DURABLE),
    },
    "log": {
        "peers": Refusal(_is(BROKER), "there is no broker to keep it", _FOLDER),
        "overlay": Refusal(_is(BROKER), "brokers of an overlay keep no logs", _FOLDER),
    },
    "start": {
        "atoms": Refusal(_other_than("now"), "a member gets what is published from now on", _TREE),
        "peers": Refusal(_other_than("now"), "peers do not keep what was published before", _BROKER),
        "overlay": Refusal(_other_than("now"), "an overlay does not keep what was published before"),
    },
    "where": {"peers": Refusal(_given, "peers do not filter", _BROKER)},
}

_ALWAYS = _given
_NO_ADVERTISING = "only an overlay must know beforehand what will be published"
_NEW_FILTER = "close this subscription, and subscribe again with another filter"

METHODS: dict[str, dict[Substrate, Refusal]] = {
    "advertise": {
        "tree": Refusal(_ALWAYS, _NO_ADVERTISING, "just publish"),
        "atoms": Refusal(_ALWAYS, _NO_ADVERTISING, "just publish"),
        "peers": Refusal(_ALWAYS, _NO_ADVERTISING, "just publish"),
    },
    "add": {"overlay": Refusal(_ALWAYS, "the filter of a subscription does not change", _NEW_FILTER)},
    "remove": {"overlay": Refusal(_ALWAYS, "the filter of a subscription does not change", _NEW_FILTER)},
    "acknowledge": SUBSCRIBE["acknowledge"],
    "seek": {
        "atoms": Refusal(_ALWAYS, "a member gets what is published from now on", _TREE),
        "peers": Refusal(_ALWAYS, "peers do not keep what was published before", _BROKER),
        "overlay": Refusal(_ALWAYS, "an overlay does not keep what was published before"),
    },
}


def check(table: dict[str, dict[Substrate, Refusal]], kind: Substrate, options: Mapping[str, object]) -> None:
    """InputError: this kind of bus refuses one of the options."""
    for option, cells in table.items():
        cell = cells.get(kind)
        if cell is not None and option in options and cell.refuses(options[option]):
            raise _error(option, kind, cell)


def refusal(method: str, kind: Substrate) -> InputError:
    """The error that says why this kind has no such method."""
    return _error(method, kind, METHODS[method][kind])


def _error(option: str, kind: Substrate, cell: Refusal) -> InputError:
    return InputError(option, f"{cell.reason} ({WHERE[kind]})", cell.instead)
