"""Asking a running peer how it is: what `seriatim status` does, and what a newcomer does that knows only a seed."""

from seriatim.peers.report import PeerReport, decode_report
from seriatim.runtime.observing import ask
from seriatim.runtime.security import SecurityOptions


async def observe(address: str, security: SecurityOptions, timeout_s: float) -> PeerReport:
    """What the peer at this address says. ConnectionFailed: nobody answers there, or not to us."""
    return await ask(address, security, timeout_s, "peer", decode_report)
