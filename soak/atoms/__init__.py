"""The soak of sequencing atoms."""
