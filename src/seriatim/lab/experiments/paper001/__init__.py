"""The experiments of paper 001: what it states, and how to run it again."""
