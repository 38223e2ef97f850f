"""What the commands that talk to a running cluster share: options, output, and an end that is always orderly."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import click
from msgspec import Struct

from seriatim.model import InputError

if TYPE_CHECKING:
    from seriatim import Bus

DEFAULT_URL = "nats://127.0.0.1:4222"
DEFAULT_CLUSTER = "seriatim"
DEFAULT_TIMEOUT_S = 10.0

_Function = TypeVar("_Function", bound=Callable[..., Any])
_Result = TypeVar("_Result")


def url_option(function: _Function) -> _Function:
    """--url, --cluster and --timeout: where the cluster is and how long to wait for it."""
    return _with_options(
        function,
        click.option(
            "--url",
            envvar="SERIATIM_URL",
            default=DEFAULT_URL,
            show_default=True,
            help="URL of the broker (environment: SERIATIM_URL).",
        ),
        click.option(
            "--cluster",
            envvar="SERIATIM_CLUSTER",
            default=DEFAULT_CLUSTER,
            show_default=True,
            help="Name of the cluster (environment: SERIATIM_CLUSTER).",
        ),
        click.option(
            "--timeout",
            "timeout_s",
            type=click.FloatRange(min=0, min_open=True),
            default=DEFAULT_TIMEOUT_S,
            show_default=True,
            help="Seconds to wait for an answer before giving up.",
        ),
    )


def client_options(function: _Function) -> _Function:
    """How a client proves who it is to the sequencers: --token-file, --authority, --certificate and --key."""
    file = click.Path(exists=True, dir_okay=False)
    return _with_options(
        function,
        click.option("--token-file", type=file, envvar="SERIATIM_TOKEN_FILE", help="File with the clients' token."),
        click.option("--authority", type=file, help="Certificates that the sequencers' are checked against (TLS)."),
        click.option("--certificate", type=file, help="Certificate to show to the sequencers (TLS)."),
        click.option("--key", type=file, help="Key of the certificate (TLS)."),
        click.option(
            "--order",
            type=click.Choice(["tree", "atoms"]),
            envvar="SERIATIM_ORDER",
            default="tree",
            show_default=True,
            help="What orders in the cluster (environment: SERIATIM_ORDER).",
        ),
    )


def peer_options(function: _Function) -> _Function:
    """The same for peers, where no peers.toml says it."""
    file = click.Path(exists=True, dir_okay=False)
    return _with_options(
        function,
        click.option("--token-file", type=file, help="File with the peers' token, if no peers.toml is given."),
        click.option("--authority", type=file, help="Certificates to check peers against (TLS)."),
        click.option("--certificate", type=file, help="Certificate of this machine, to show to peers (TLS)."),
        click.option("--key", type=file, help="Key of the certificate (TLS)."),
    )


def _with_options(function: _Function, *options: Callable[[_Function], _Function]) -> _Function:
    for option in reversed(options):
        function = option(function)
    return function


def default_journals() -> Path:
    """The folder for journals when none is named: below XDG_STATE_HOME, or ~/.local/state."""
    home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(home) / "seriatim"


def peer_journals(url: str) -> Path | None:
    """The folder where a peer counts its lives. None: the list of peers names it."""
    from seriatim.client.peers.urls import parse_peer_url

    return None if parse_peer_url(url).file is not None else default_journals() / "peers"


def check_outlives(url: str, key: str = "url") -> None:
    """Refuse a broker that would be inside this process: nobody else can reach it, and it ends with the command."""
    from seriatim.brokers.urls import kind_or_none

    kind = kind_or_none(url)
    if kind is not None and kind.in_process:
        problem = "memory:// is inside one process, and a command is a process of its own"
        raise InputError(key, problem, "use nats://host:port; `seriatim up` starts a server")


class Client(Struct, frozen=True, kw_only=True):
    """How a command connects; plain values, so that it can be handed to another process."""

    url: str = DEFAULT_URL
    cluster: str = DEFAULT_CLUSTER
    timeout_s: float = DEFAULT_TIMEOUT_S
    token_file: str | None = None
    authority: str | None = None
    certificate: str | None = None
    key: str | None = None
    order: Literal["tree", "atoms"] = "tree"

    @classmethod
    def of(cls, options: dict[str, Any]) -> "Client":
        """From a command's arguments, of which there may be others."""
        return cls(**{name: options[name] for name in cls.__struct_fields__ if name in options})

    def connect(self, **more: Any) -> "Bus":
        """A bus that is not connected yet. Files that are missing or wrong raise an error now."""
        from seriatim import connect
        from seriatim.runtime.net.security import SecurityOptions

        security = SecurityOptions.load(
            token_file=self.token_file or "",
            authority=self.authority or "",
            certificate=self.certificate or "",
            key=self.key or "",
        )
        check_outlives(self.url)
        if self.url.startswith("vcube:") and more.get("journals") is None:
            more["journals"] = peer_journals(self.url)
        return connect(
            self.url,
            cluster=self.cluster,
            timeout_s=self.timeout_s,
            token=security.token or None,
            tls=security if security.encrypted else None,
            order=self.order,
            **more,
        )


def check_readable(url: str, timeout_s: float = DEFAULT_TIMEOUT_S) -> None:
    """Check that Spark can read this broker, and that it answers, before Spark is started: this is much quicker."""
    from seriatim.brokers.urls import bulk_reader

    bulk_reader(url)
    check_answers(url, timeout_s)


def check_answers(url: str, timeout_s: float = DEFAULT_TIMEOUT_S) -> None:
    """Check that the broker at this URL answers."""
    from seriatim.brokers.urls import open_broker, shown
    from seriatim.model import ConnectionFailed
    from seriatim.runtime.loop import run

    async def look() -> None:
        broker = open_broker(url)
        try:
            async with asyncio.timeout(timeout_s):
                await broker.open()
        except TimeoutError:
            raise ConnectionFailed(
                f"no broker answers at {shown(url)} within {timeout_s:g} s; is it running?"
            ) from None
        finally:
            await broker.close()

    run(look())


def log_option(default: str) -> Callable[[_Function], _Function]:
    """--log-level: what a server writes to stderr."""
    return click.option(
        "--log-level",
        type=click.Choice(["debug", "info", "warning", "error"]),
        default=default,
        show_default=True,
        help="What to write to stderr.",
    )


json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")


def show_json(value: object) -> None:
    """Print one line of JSON and flush it, because another program may be reading."""
    click.echo(json.dumps(value, ensure_ascii=False))


def notice(text: str) -> None:
    """Print a remark on stderr, as JSON if the command was given --json."""
    context = click.get_current_context(silent=True)
    is_json = context is not None and context.params.get("as_json")
    click.echo(json.dumps({"message": text}, ensure_ascii=False) if is_json else text, err=True)


def write_whole(path: Path, value: object) -> None:
    """Write JSON to a file at once: a reader never sees half of it."""
    beside = path.with_name(f"{path.name}.{os.getpid()}")
    beside.write_text(json.dumps(value), encoding="utf-8")
    beside.replace(path)


def is_terminal() -> bool:
    """Whether stderr is a terminal: then progress is shown there."""
    return sys.stderr.isatty()


def run_until_interrupted(
    work: Callable[[], Coroutine[Any, Any, _Result]], at_once: Callable[[], object] | None = None
) -> _Result:
    """Run the work. The first SIGINT or SIGTERM cancels it, lets it tidy up, and raises KeyboardInterrupt.

    A second signal ends the process at once, after calling `at_once`, which can end what would outlive the process.
    """
    from seriatim.runtime.loop import run

    async def guarded() -> tuple[_Result | None, bool]:
        task = asyncio.create_task(work())
        interrupted = stop_on_signals(task.cancel, at_once)
        try:
            return await task, False
        except asyncio.CancelledError:
            if interrupted.is_set():
                return None, True
            raise

    result, is_interrupted = run(guarded())
    if is_interrupted:
        raise KeyboardInterrupt
    return result  # type: ignore[return-value]  # None only if interrupted


def run_service(work: Callable[[], Coroutine[Any, Any, None]], at_once: Callable[[], object] | None = None) -> None:
    """The same for a service. It runs until a signal ends it, without a KeyboardInterrupt."""
    try:
        run_until_interrupted(work, at_once)
    except KeyboardInterrupt:
        return


def stop_on_signals(stop: Callable[[], object], at_once: Callable[[], object] | None = None) -> asyncio.Event:
    """Call `stop` at the first SIGINT or SIGTERM; end at once at the second. The event is set by the first."""
    seen = asyncio.Event()

    def handle(number: int) -> None:
        if seen.is_set():
            if at_once is not None:
                at_once()
            os._exit(128 + number)
        seen.set()
        stop()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, handle, number)
    return seen
