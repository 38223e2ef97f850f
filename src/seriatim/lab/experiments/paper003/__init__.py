"""The experiments of paper 003: what it states, and how to run it again."""
