"""NATS: JetStream and plain."""
