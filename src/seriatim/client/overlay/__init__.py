"""The client of the content-based overlay."""
