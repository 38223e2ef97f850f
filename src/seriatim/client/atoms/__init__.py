"""The client of sequencing atoms."""
