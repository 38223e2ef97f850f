"""Brokers that filter by content, as processes that talk over TCP. docs/overlay.md is the guide."""

from seriatim.live.overlay.config import BrokerReport, OverlayConfig, load_overlay, observe_broker, parse_overlay
from seriatim.live.overlay.live import LiveBroker

__all__ = ["BrokerReport", "LiveBroker", "OverlayConfig", "load_overlay", "observe_broker", "parse_overlay"]
