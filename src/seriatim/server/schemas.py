"""The common part of the configuration files of all products: names, addresses, security."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeAlias, TypeVar

from msgspec import Struct, to_builtins

from seriatim.model import APPLICATION, BROKER, InputError
from seriatim.runtime.net.addresses import is_loopback, split_address
from seriatim.runtime.net.security import SecurityOptions
from seriatim.runtime.net.system import SystemDescription
from seriatim.runtime.tables import about

ClusterName: TypeAlias = Annotated[
    str, about("a name of up to 32 letters, digits and -", pattern=r"^[A-Za-z0-9][A-Za-z0-9-]{0,31}$")
]
NODE_NAME = r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$"
NodeName: TypeAlias = Annotated[str, about("a name of up to 64 letters, digits, - and _", pattern=NODE_NAME)]
PAYLOAD_BYTES_MAX = 4 * 1024 * 1024  # half of what fits into a frame
PayloadBytes: TypeAlias = Annotated[
    int, about(f"the most bytes of one event, up to {PAYLOAD_BYTES_MAX}", ge=1, le=PAYLOAD_BYTES_MAX)
]

_Name = TypeVar("_Name")  # of a process: a text or a number


class SecurityFiles(Struct, frozen=True, kw_only=True):
    """Who may connect, and what this process shows. Relative paths start at the folder of the file."""

    token_file: Annotated[str, about("the file with the token of clients")] = ""
    certificate: Annotated[str, about("the file with this machine's certificate chain (PEM)")] = ""
    key: Annotated[str, about("the file with the certificate's key (PEM)")] = ""
    authority: Annotated[str, about("the file with the certificates that others are checked against")] = ""
    require_client_certificate: Annotated[bool, about("true, or false to admit connections without a certificate")] = (
        False
    )

    def __post_init__(self) -> None:
        for one, other in (("certificate", "key"), ("key", "certificate")):
            if getattr(self, one) and not getattr(self, other):
                raise InputError(other, f"is missing, and {one} is given", "give both or neither")
        if self.require_client_certificate and not (self.authority and self.certificate):
            problem = "certificates cannot be required without something to check them against"
            raise InputError("require_client_certificate", problem, "give authority, certificate and key")

    def load(self, folder: Path, *, nodes: str = "node_token_file") -> SecurityOptions:
        """Read the tokens, and check the files. `nodes`: the field with the token of nodes, if there is one."""
        files: dict[str, Any] = to_builtins(self)
        files["node_token_file"] = files.pop(nodes, "")
        return load_security(files, folder, "security", nodes)


def load_security(files: Mapping[str, Any], folder: Path, table: str, nodes: str = "") -> SecurityOptions:
    """Security options from files that a table names. An error names the key of that table."""
    known = {name: value for name, value in files.items() if name in SECURITY_KEYS}
    try:
        return SecurityOptions.load(**known, folder=folder)
    except InputError as error:
        field = error.field.replace("node_token", nodes.removesuffix("_file")) if nodes else error.field
        raise InputError(f"{table}.{field}", error.problem, error.fix) from None


SECURITY_KEYS = {*SecurityFiles.__struct_fields__, "node_token_file", "tls"}


class ProcessAddress(Struct, frozen=True, kw_only=True):
    """Where one process is: `"host:port"`, or a table."""

    short: ClassVar[str] = "address"

    address: Annotated[str, about('"host:port" where the others find it')]
    bind: Annotated[str, about('"host:port" to listen on where that is not the address itself (containers)')] = ""

    def is_exposed(self, security: SecurityOptions) -> bool:
        """Whether other machines can reach it without a token or certificate."""
        return not security.asks_clients and not is_loopback(self.bind or self.address)


class SystemFile(Struct, frozen=True, kw_only=True):
    """The file of a system of equal processes, peers or brokers. `folder` is where relative paths start."""

    kind: ClassVar[str]  # what one of the processes is called; they are listed in `[<kind>s]`
    example: ClassVar[str]

    cluster: ClusterName = "seriatim"
    journals: Annotated[str, about("the folder in which each process keeps its journal")] = "journals"
    folder: Path = Path()

    @property
    def places(self) -> Mapping[Any, ProcessAddress]:
        places: Mapping[Any, ProcessAddress] = getattr(self, f"{self.kind}s")
        return places

    def journal(self, name: object) -> Path:
        return self.folder / self.journals / f"{self.kind}-{name}"

    @property
    def description(self) -> SystemDescription:
        """What all processes must be given alike."""
        raise NotImplementedError

    def load_security(self) -> SecurityOptions:
        """Tokens and certificates, read from their files."""
        raise NotImplementedError

    def check_member(self, name: _Name) -> _Name:
        """Return the name. InputError: it is not listed."""
        if name not in self.places:
            some = ", ".join(str(each) for each in sorted(self.places)[:10])
            fix = f"add [{self.kind}s] {name}, or give one of {some}"
            raise InputError("id", f"there is no {self.kind} {name!r} in the list", fix)
        return name

    def check_places(self) -> None:
        """InputError: the list is empty, a port is missing, or two processes share an address."""
        kind, taken = self.kind, dict[str, object]()
        if not self.places:
            raise InputError(f"{kind}s", "the list is empty", f"write [{kind}s] and a line such as {self.example}")
        for name, place in self.places.items():
            path = f"{kind}s.{name}.address"
            _, port = split_address(path, place.address)
            if port == 0:
                raise InputError(path, f"{place.address!r} has no fixed port", f"give every {kind} a port above 0")
            if place.address in taken:
                problem = f"{place.address!r} is also the address of {kind} {taken[place.address]}"
                raise InputError(path, problem, "give each its own port")
            taken[place.address] = name
            if place.bind:
                split_address(f"{kind}s.{name}.bind", place.bind)


def check_name(path: str, name: str) -> None:
    """Refuse the names that machines use for the broker and the application."""
    if name in (BROKER, APPLICATION):
        raise InputError(path, f"{name!r} has another meaning", "choose another name")


def check_node_name(path: str, name: str) -> None:
    """Whether a node may be called so that does not come from a file."""
    if not re.fullmatch(NODE_NAME, name) or name == "none":
        raise InputError(path, f"{name!r} cannot be the name of a node", "use up to 64 letters, digits, - and _")
    check_name(path, name)
