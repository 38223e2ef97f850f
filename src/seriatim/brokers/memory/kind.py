"""URLs of memory brokers: `memory://name?seed=7&loss=0.1`. Within a process, one name is one broker.

Options: seed, loss, duplication, reordering, delay_ms, keeps_log, buckets, markers; `MemoryBroker` explains them.
"""

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

from seriatim.brokers.memory.broker import MemoryBroker
from seriatim.brokers.seam import Broker, Kind
from seriatim.brokers.urls import check_options, read_query, read_truth, split_url
from seriatim.model import InputError

_OPTIONS: dict[str, Callable[[str], Any]] = {
    "seed": int,
    "loss": float,
    "duplication": float,
    "reordering": float,
    "delay_ms": float,
    "keeps_log": read_truth,
    "buckets": int,
    "markers": int,
}

_shared: dict[str, "_Shared"] = {}


class _Shared(Struct):
    """A broker of this process that is known by name, while somebody is connected."""

    options: dict[str, Any]
    broker: MemoryBroker
    connections: int = 0


class _NamedMemoryBroker(MemoryBroker):
    """A connection to a broker known by name; the last one to be closed ends it."""

    def __init__(self, name: str, shared: _Shared) -> None:
        super().__init__()
        self._name = name
        self._shared: _Shared | None = shared
        self.connect_to(shared.broker)
        shared.connections += 1

    async def close(self) -> None:
        await super().close()
        if (shared := self._shared) is not None:
            self._shared = None
            shared.connections -= 1
            if not shared.connections and _shared.get(self._name) is shared:
                del _shared[self._name]


class MemoryKind(Kind):
    """Brokers in this process."""

    in_process = True
    has_order_log = True

    def check(self, url: str) -> None:
        read_query(url, split_url(url).query, _OPTIONS)

    def open(self, url: str, options: Mapping[str, Any]) -> Broker:
        parts = split_url(url)
        name = parts.netloc
        if parts.path not in ("", "/"):
            raise InputError("url", f"{url!r} has a path", "use memory://name?option=value")
        chosen = {**read_query(url, parts.query, _OPTIONS), **check_options(options, _OPTIONS)}
        if not name:  # nobody else can name it: a broker of its own
            return MemoryBroker(**chosen)
        if (shared := _shared.get(name)) is None:
            shared = _shared[name] = _Shared(chosen, MemoryBroker(**chosen))
        for option, value in chosen.items():
            if shared.options.get(option, value) != value or option not in shared.options:
                raise InputError(
                    option,
                    f"memory://{name} is open already, with other options ({shared.options or 'none'})",
                    "name the options where it is opened first, the same ones later or none",
                )
        return _NamedMemoryBroker(name, shared)


MEMORY = MemoryKind()
