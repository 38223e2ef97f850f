"""The experiments of paper 003: its statements, and how to run them again."""
