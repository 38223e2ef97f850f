"""The experiments of paper 000: what it states, and how to run it again."""
