"""The soak of peers."""
