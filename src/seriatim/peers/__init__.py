"""Peers of VCube-PS as processes that talk over TCP, without a broker. docs/peers.md is the guide."""

from seriatim.peers.config import PeersConfig, load_peers, parse_peers
from seriatim.peers.live import LivePeer
from seriatim.peers.observing import observe
from seriatim.peers.report import PeerReport

__all__ = ["LivePeer", "PeerReport", "PeersConfig", "load_peers", "observe", "parse_peers"]
