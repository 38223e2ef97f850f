"""Journals: what a machine must remember, written before it acts."""
