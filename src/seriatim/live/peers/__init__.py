"""Peers of VCube-PS as processes that talk over TCP, without a broker. docs/peers.md is the guide."""

from seriatim.live.peers.config import PeersConfig, load_peers, parse_peers
from seriatim.live.peers.live import LivePeer
from seriatim.live.peers.report import PeerReport, observe

__all__ = ["LivePeer", "PeerReport", "PeersConfig", "load_peers", "observe", "parse_peers"]
