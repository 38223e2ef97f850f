"""The experiments of paper 004: what it states, and how to run it again."""
