"""Journals of nodes in JetStream streams."""
