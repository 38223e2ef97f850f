"""The soak of a sequencing tree on NATS."""
