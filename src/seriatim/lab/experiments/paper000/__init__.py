"""The experiments of paper 000: its statements, and how to run them again."""
