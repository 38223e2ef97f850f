"""The experiments of paper 001: its statements, and how to run them again."""
