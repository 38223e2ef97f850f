"""The common part of all commands: options, output, and an orderly end in every case."""

import asyncio
import base64
import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import click
from msgspec import Struct

from seriatim.cli.supervision import beat_forever, tell_manager
from seriatim.model import ConnectionFailed, InputError
from seriatim.server.orders import OLD_WORD, TREE_IS_GLOBAL, Order

if TYPE_CHECKING:
    from seriatim import Bus
    from seriatim.brokers import Broker
    from seriatim.runtime.net.security import SecurityOptions

DEFAULT_URL = "nats://127.0.0.1:4222"
DEFAULT_CLUSTER = "seriatim"
DEFAULT_TIMEOUT_S = 10.0

Files: TypeAlias = Mapping[str, str | None]  # tokens and certificates, as options

_Function = TypeVar("_Function", bound=Callable[..., Any])
_Result = TypeVar("_Result")


# ── options ───────────────────────────────────────────────────────────────────────────────────────────────────────


def add_options(*each: Callable[[Any], Any]) -> Callable[[_Function], _Function]:
    """A decorator that adds these options, in this order."""

    def add(function: _Function) -> _Function:
        for option in reversed(each):
            function = option(function)
        return function

    return add


_EXISTING = click.Path(exists=True, dir_okay=False)

url_option = add_options(
    click.option(
        "--url", envvar="SERIATIM_URL", default=DEFAULT_URL, help="URL of the broker (environment: SERIATIM_URL)."
    ),
    click.option(
        "--cluster",
        envvar="SERIATIM_CLUSTER",
        default=DEFAULT_CLUSTER,
        help="Name of the cluster (environment: SERIATIM_CLUSTER).",
    ),
    click.option(
        "--timeout",
        "timeout_s",
        type=click.FloatRange(min=0, min_open=True),
        default=DEFAULT_TIMEOUT_S,
        help="Seconds to wait for an answer before giving up.",
    ),
)


class OrderChoice(click.Choice[str]):
    """One of the orders. The older keyword "tree" is read as "global", with a notice."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == OLD_WORD:
            click.echo(f"note: {TREE_IS_GLOBAL.meaning}", err=True)
            return None if param is not None and param.default is None else "global"
        return super().convert(value, param, ctx)


# How a client proves who it is to the sequencers.
client_options = add_options(
    click.option("--token-file", type=_EXISTING, envvar="SERIATIM_TOKEN_FILE", help="File with the clients' token."),
    click.option("--authority", type=_EXISTING, help="Certificates that the sequencers' are checked against (TLS)."),
    click.option("--certificate", type=_EXISTING, help="Certificate to show to the sequencers (TLS)."),
    click.option("--key", type=_EXISTING, help="Key of the certificate (TLS)."),
    click.option(
        "--order",
        type=OrderChoice(["global", "pairwise", "atoms"]),
        envvar="SERIATIM_ORDER",
        help="What the cluster must promise; default: any order of a tree (environment: SERIATIM_ORDER).",
    ),
)

# The same for peers and overlays, where no file of theirs says it.
peer_options = add_options(
    click.option("--token-file", type=_EXISTING, help="File with the peers' token, if no peers.toml is given."),
    click.option("--authority", type=_EXISTING, help="Certificates to check peers against (TLS)."),
    click.option("--certificate", type=_EXISTING, help="Certificate of this machine, to show to peers (TLS)."),
    click.option("--key", type=_EXISTING, help="Key of the certificate (TLS)."),
)

json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")


def service_options(log_level: str, ready: str, check: str | None = None) -> Callable[[_Function], _Function]:
    """--ready-file, --check, --log-level and --json of a command that serves. `ready`: what the file is told."""
    return add_options(
        click.option(
            "--ready-file", type=click.Path(path_type=Path, dir_okay=False), help=f"Write the {ready} here when ready."
        ),
        *([click.option("--check", is_flag=True, help=check)] if check is not None else []),
        click.option(
            "--log-level",
            type=click.Choice(["debug", "info", "warning", "error"]),
            default=log_level,
            help="The lowest level of messages to write to stderr.",
        ),
        json_option,
    )


def log_option(help: str) -> Callable[[_Function], _Function]:
    """--log: the folder where a client writes down what it published or was notified of."""
    return click.option("--log", "folder", type=click.Path(file_okay=False), metavar="FOLDER", help=help)


def names_in(text: str) -> list[str]:
    """The names in a text that separates them by commas."""
    return [name.strip() for name in text.split(",") if name.strip()]


def pairs_in(option: str, texts: Iterable[str], what: str, form: str) -> list[tuple[str, str]]:
    """The two sides of each `left=right` that an option was given. Otherwise it is not `what`, written as `form`."""
    pairs = []
    for text in texts:
        left, equals, right = text.partition("=")
        if not equals or not left:
            raise InputError(option, f"{text!r} is not {what}", f"write it as {form}")
        pairs.append((left, right))
    return pairs


# ── connections ───────────────────────────────────────────────────────────────────────────────────────────────────


def default_journals() -> Path:
    """The folder for journals when none is named: below XDG_STATE_HOME, or ~/.local/state."""
    home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(home) / "seriatim"


def is_direct(url: str) -> bool:
    """Whether this is the URL of peers or of an overlay, which are asked directly and not over a broker."""
    return url.startswith(("vcube:", "overlay:"))


def check_outlives(url: str, key: str = "url") -> None:
    """Refuse a broker that would be inside this process: nobody else can reach it, and it ends with the command."""
    from seriatim.brokers.urls import kind_or_none

    kind = kind_or_none(url)
    if kind is not None and kind.in_process:
        problem = "memory:// is inside one process, and a command is a process of its own"
        raise InputError(key, problem, "use nats://host:port; `seriatim up` starts a server")


def check_no_files(files: Files) -> None:
    """Refuse files that have no effect: a cluster of sequencers is asked over its broker."""
    for name, value in files.items():
        if value is not None:
            option = "--" + name.replace("_", "-")
            raise InputError(option, "is only for peers and overlays", "leave it out")


def load_security(files: Files) -> "SecurityOptions":
    """Tokens and certificates from the files that the options name. InputError: one is missing or wrong."""
    from seriatim.runtime.net.security import SecurityOptions

    given: dict[str, Any] = {name: value or "" for name, value in files.items()}
    return SecurityOptions.load(**given)


class Client(Struct, frozen=True, kw_only=True):
    """How a command connects; plain values, so that it can be handed to another process."""

    url: str = DEFAULT_URL
    cluster: str = DEFAULT_CLUSTER
    timeout_s: float = DEFAULT_TIMEOUT_S
    token_file: str | None = None
    authority: str | None = None
    certificate: str | None = None
    key: str | None = None
    order: Order | None = None

    def connect(self, **more: Any) -> "Bus":
        """A bus that is not connected yet. Files that are missing or wrong raise an error now."""
        from seriatim import connect

        security = load_security(
            {name: getattr(self, name) for name in ("token_file", "authority", "certificate", "key")}
        )
        check_outlives(self.url)
        if self.url.startswith("vcube:") and more.get("journals") is None:
            from seriatim.client.peers.urls import parse_peer_url

            if parse_peer_url(self.url).file is None:  # otherwise the list of peers names the folder
                more["journals"] = default_journals() / "peers"
        return connect(
            self.url,
            cluster=self.cluster,
            timeout_s=self.timeout_s,
            token=security.token or None,
            tls=security if security.encrypted else None,
            order=self.order,
            **more,
        )


@contextlib.asynccontextmanager
async def opened(url: str, timeout_s: float, **options: Any) -> "AsyncIterator[Broker]":
    """The broker at this URL. ConnectionFailed: it does not answer in time."""
    from seriatim.brokers.urls import open_broker, shown

    broker = open_broker(url, **options)
    try:
        try:
            async with asyncio.timeout(timeout_s):
                await broker.open()
        except TimeoutError:
            raise ConnectionFailed(
                f"no broker answers at {shown(url)} within {timeout_s:g} s; is it running?"
            ) from None
        yield broker
    finally:
        await broker.close()


def check_answers(url: str, timeout_s: float = DEFAULT_TIMEOUT_S) -> None:
    """Check that the broker at this URL answers."""
    from seriatim.runtime.loop import run

    async def look() -> None:
        async with opened(url, timeout_s):
            pass

    run(look())


def check_readable(url: str, timeout_s: float = DEFAULT_TIMEOUT_S) -> None:
    """Check that Spark can read this broker, and that it answers, before Spark is started: this is much quicker."""
    from seriatim.brokers.urls import bulk_reader

    bulk_reader(url)
    check_answers(url, timeout_s)


# ── output ────────────────────────────────────────────────────────────────────────────────────────────────────────


def as_json_line(value: object) -> str:
    """One line of JSON."""
    return json.dumps(value, ensure_ascii=False)


def show_json(value: object) -> None:
    """Print one line of JSON and flush it, because another program may be reading."""
    click.echo(as_json_line(value))


def show_rows(
    found: Iterable[_Result],
    headings: Sequence[str],
    cells: Callable[[_Result], Sequence[str]],
    as_dict: Callable[[_Result], Mapping[str, object]],
    as_json: bool,
) -> None:
    """Print a table, or with --json one line for each row."""
    if as_json:
        for each in found:
            show_json(as_dict(each))
    else:
        click.echo(table(headings, [cells(each) for each in found]))


def notice(text: str) -> None:
    """Print a remark on stderr, as JSON if the command was given --json."""
    context = click.get_current_context(silent=True)
    is_json = context is not None and context.params.get("as_json")
    click.echo(json.dumps({"message": text}, ensure_ascii=False) if is_json else text, err=True)


def is_terminal() -> bool:
    """Whether stderr is a terminal: then progress is shown there."""
    return sys.stderr.isatty()


def show_progress(text: str, stays: bool = False) -> None:
    """Show on a terminal how far the work is. The next text overwrites this one, unless it `stays`."""
    if is_terminal():
        click.echo(f"\r\033[K{text}", nl=stays, err=True)


def many(count: int, noun: str) -> str:
    """`1 node`, `2 nodes`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def table(headings: Sequence[str], rows: Sequence[Sequence[str]], colours: Mapping[str, str] | None = None) -> str:
    """A line per row, columns as wide as they must be. `colours`: of cells that hold just this word."""
    widths = [max(map(len, column)) for column in zip(headings, *rows, strict=True)]

    def shown(cell: str, width: int) -> str:
        padded = f"{cell:{width}}"
        return click.style(padded, fg=colours[cell]) if colours and cell in colours else padded

    return "\n".join("  ".join(map(shown, row, widths)).rstrip() for row in (headings, *rows))


def data_as_json(data: bytes) -> dict[str, str]:
    """The data of an event. What is not text is base64, under another name."""
    try:
        return {"data": data.decode()}
    except UnicodeDecodeError:
        return {"data_base64": base64.b64encode(data).decode()}


def write_whole(path: Path, text: str) -> None:
    """Write a file at once: a reader never sees half of it."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        beside.write_text(text, encoding="utf-8")
        beside.replace(path)
    except OSError:
        beside.unlink(missing_ok=True)
        raise


def write_ready(path: Path | None, row: Mapping[str, Any]) -> None:
    """Write to --ready-file, if it is given, that a service is ready; before anything is printed about it.

    The service manager is told, too.
    """
    if path is not None:
        write_whole(path, json.dumps({**row, "pid": os.getpid()}))
    tell_manager("READY=1")


# ── running ───────────────────────────────────────────────────────────────────────────────────────────────────────


def run_until_interrupted(
    work: Callable[[], Coroutine[Any, Any, _Result]], at_once: Callable[[], object] | None = None
) -> _Result:
    """Run the work. The first SIGINT or SIGTERM cancels it, lets it tidy up, and raises KeyboardInterrupt.

    A second signal ends the process at once, after calling `at_once`, which can end what would outlive the process.
    """
    from seriatim.runtime.loop import run

    async def guarded() -> tuple[_Result | None, bool]:
        task = asyncio.create_task(work())
        interrupted = _stop_on_signals(task.cancel, at_once)
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
    """Run a service until a signal ends it. Unlike `run_until_interrupted`, it raises no KeyboardInterrupt."""

    async def watched() -> None:
        beats = asyncio.create_task(beat_forever())
        try:
            await work()
        finally:
            beats.cancel()

    with contextlib.suppress(KeyboardInterrupt):
        run_until_interrupted(watched, at_once)


def _stop_on_signals(stop: Callable[[], object], at_once: Callable[[], object] | None) -> asyncio.Event:
    """Call `stop` at the first SIGINT or SIGTERM; end at once at the second. The event is set by the first."""
    seen = asyncio.Event()

    def handle(number: int) -> None:
        if seen.is_set():
            if at_once is not None:
                at_once()
            os._exit(128 + number)
        seen.set()
        tell_manager("STOPPING=1")
        stop()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, handle, number)
    return seen
