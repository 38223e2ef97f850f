"""Brokers of an overlay and their clients, over real sockets."""
