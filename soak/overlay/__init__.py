"""The soak of an overlay."""
