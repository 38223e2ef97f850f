"""Connections between processes: addresses, handshakes, security, wire format."""
