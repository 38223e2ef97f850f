"""Peers of VCube-PS as processes that talk over TCP, without a broker. docs/peers.md is the guide."""

from seriatim.live.peers.config import PeerReport, PeersConfig, load_peers, observe, parse_peers
from seriatim.live.peers.live import LivePeer

__all__ = ["LivePeer", "PeerReport", "PeersConfig", "load_peers", "observe", "parse_peers"]
