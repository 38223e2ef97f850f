"""Fault injection with real processes: `python -m soak` for as long as asked; tests/faults uses the same pieces."""
