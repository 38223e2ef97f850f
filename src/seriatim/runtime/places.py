"""Where the processes of a system are, as the file says that all of them are given (system.py): a line or a table each.

[peers]
0 = "127.0.0.1:7500"
1 = { address = "host:7501", bind = "0.0.0.0:7501" }
"""

from collections.abc import Mapping
from typing import Annotated, TypeVar

from msgspec import Meta, Struct

from seriatim.model import InputError
from seriatim.runtime.addresses import is_loopback, split_address
from seriatim.runtime.security import SecurityOptions
from seriatim.runtime.tables import convert_table


class Place(Struct, frozen=True, kw_only=True):
    """Where one process is."""

    address: Annotated[str, Meta(description='"host:port" where the others find it')]
    bind: Annotated[
        str, Meta(description='"host:port" to listen on where that is not the address itself (containers)')
    ] = ""

    def is_exposed(self, security: SecurityOptions) -> bool:
        """Whether other machines can reach it, and anybody there is let in: worth a warning."""
        if security.asks_clients:
            return False
        return not is_loopback(self.bind or self.address)


P = TypeVar("P", bound=Place)


def read_place(type_: type[P], table: str, key: str, value: object) -> P:
    """One entry of `[table]`: an address, or a table with one."""
    if isinstance(value, str):
        return type_(address=value)
    if not isinstance(value, dict):
        raise InputError(f"{table}.{key}", f"{value!r} is not an address", f'write {key} = "host:port"')
    if "address" not in value:
        raise InputError(f"{table}.{key}.address", "is missing", 'give "host:port" where the others find it')
    return convert_table(type_, value, f"{table}.{key}")


def check_places(kind: str, places: Mapping[str, Place] | Mapping[int, Place], example: str) -> None:
    """Whether everybody can be found, and no two at one address. `kind`: what one of `[kinds]` is called."""
    if not places:
        raise InputError(f"{kind}s", "there are none", f"write [{kind}s] and a line such as {example} for each")
    taken: dict[str, str | int] = {}
    for name, place in places.items():
        path = f"{kind}s.{name}.address"
        _, port = split_address(path, place.address)
        if port == 0:
            raise InputError(path, f"{place.address!r} is not known to others", f"give every {kind} a port above 0")
        if place.address in taken:
            problem = f"{place.address!r} is also {kind} {taken[place.address]}'s"
            raise InputError(path, problem, "give each its own port")
        taken[place.address] = name
        if place.bind:
            split_address(f"{kind}s.{name}.bind", place.bind)
