"""`seriatim status` and `seriatim explain` on overlay:// URLs: ask every broker of a file, or the one named."""

import asyncio
from typing import Any, TypeAlias

from seriatim.cli.answers import Asked, Files, exit_code, explain_answers, show_rows
from seriatim.cli.common import run_until_interrupted
from seriatim.live.overlay.config import BrokerReport, load_overlay, observe_broker
from seriatim.model import ConnectionFailed, RemoteError
from seriatim.runtime.net.security import SecurityOptions

HEADINGS = (
    "broker", "state", "epoch", "address", "connected", "clients", "subscriptions", "advertisements", "waits",
)  # fmt: skip
COLOURS = {"alive": "green", "silent": "red"}

Answer: TypeAlias = Asked[str, BrokerReport]


def is_overlay(url: str) -> bool:
    """Whether this is the URL of an overlay."""
    return url.startswith("overlay:")


def show_brokers(url: str, files: Files, timeout_s: float, as_json: bool) -> int:
    """Show each broker in one line. The exit code is 0 if all have answered."""
    answers = _ask_all(url, files, timeout_s)
    show_rows(HEADINGS, [_row(*answer) for answer in answers], COLOURS, as_json)
    return exit_code(answers)


def explain_brokers(url: str, files: Files, timeout_s: float, as_json: bool) -> int:
    """Show what each broker waits for. The exit code is 0 if all have answered."""
    return explain_answers("broker", _ask_all(url, files, timeout_s), as_json)


def _row(name: str, address: str, report: BrokerReport | str) -> tuple[str, ...]:
    if isinstance(report, str):
        return (name, "silent", "", address, "", "", "", "", report)
    parents = report.system.parents
    neighbours = (parents[name] != "") + sum(parent == name for parent in parents.values())
    return (
        name,
        "alive",
        str(report.epoch),
        address,
        f"{len(report.connected)} of {neighbours}",
        f"{report.clients:,}",
        f"{report.subscriptions:,}",
        f"{report.advertisements:,}",
        f"{len(report.waits) + report.left_out:,}",
    )


def _ask_all(url: str, files: Files, timeout_s: float) -> list[Answer]:
    """Files given as options take precedence over those in overlay.toml, as in `connect`."""
    from seriatim.client.overlay.urls import parse_overlay_url  # only if it is needed

    place = parse_overlay_url(url)
    options: dict[str, Any] = {name: value or "" for name, value in files.items()}
    security = SecurityOptions.load(**options)
    if place.file is None:
        addresses = {place.broker: place.address}
    else:
        config = load_overlay(place.file)
        if not any(files.values()):
            security = config.client_security()
        names = [config.check_member(place.broker)] if place.broker else list(config.brokers)
        addresses = {name: config.brokers[name].address for name in names}

    async def ask() -> list[Answer]:
        return list(await asyncio.gather(*(_ask(*each, security, timeout_s) for each in addresses.items())))

    return run_until_interrupted(ask)


async def _ask(name: str, address: str, security: SecurityOptions, timeout_s: float) -> Answer:
    try:
        report = await observe_broker(address, security, timeout_s)
    except (ConnectionFailed, RemoteError) as error:
        return name, address, str(error)
    if name and report.broker != name:
        return name, address, f"broker {report.broker} answers at the address of broker {name}"
    return report.broker, address, report
