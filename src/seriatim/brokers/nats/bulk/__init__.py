"""Blocking bulk reads of JetStream streams, for Spark."""
