"""The experiments of paper 004: its statements, and how to run them again."""
