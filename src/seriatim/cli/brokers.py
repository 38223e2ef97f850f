"""`seriatim status` and `seriatim explain` on overlay:// URLs: every broker of a file is asked, or the one named."""

import asyncio
from typing import Any, TypeAlias

from seriatim.cli.answers import Asked, Files, exit_code, explain_answers, show_rows
from seriatim.cli.common import run_until_interrupted
from seriatim.model import ConnectionFailed, RemoteError
from seriatim.overlay.config import load_overlay
from seriatim.overlay.report import BrokerReport, observe_broker
from seriatim.runtime.security import SecurityOptions

HEADINGS = (
    "broker", "state", "epoch", "address", "connected", "clients", "subscriptions", "advertisements", "waits",
)  # fmt: skip
COLOURS = {"alive": "green", "silent": "red"}

Answer: TypeAlias = Asked[str, BrokerReport]


def is_overlay(url: str) -> bool:
    """Whether brokers of an overlay are meant."""
    return url.startswith("overlay:")


def show_brokers(url: str, files: Files, timeout_s: float, as_json: bool) -> int:
    """Each broker in one line. The exit code: 0 all have answered."""
    answers = _ask_all(url, files, timeout_s)
    show_rows(HEADINGS, [_row(*answer) for answer in answers], COLOURS, as_json)
    return exit_code(answers)


def explain_brokers(url: str, files: Files, timeout_s: float, as_json: bool) -> int:
    """What each broker waits for. The exit code: 0 all have answered."""
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
    """Files that are given count more than those that overlay.toml names, as in `connect`."""
    from seriatim.client.overlay_urls import parse_overlay_url  # lazily: most clusters are no overlay

    place = parse_overlay_url(url)
    options: dict[str, Any] = {name: value or "" for name, value in files.items()}
    security = SecurityOptions.load(**options)
    if place.file is None:
        addresses = {place.broker: place.address}
    else:
        config = load_overlay(place.file)
        if not any(files.values()):
            security = config.client_security()
        names = [config.check_broker(place.broker)] if place.broker else list(config.brokers)
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
