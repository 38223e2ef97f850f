"""Brokers that filter by content, as processes that talk over TCP. docs/overlay.md is the guide."""

from seriatim.live.overlay.config import OverlayConfig, load_overlay, parse_overlay
from seriatim.live.overlay.live import LiveBroker
from seriatim.live.overlay.report import BrokerReport, observe_broker

__all__ = ["BrokerReport", "LiveBroker", "OverlayConfig", "load_overlay", "observe_broker", "parse_overlay"]
