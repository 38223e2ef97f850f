"""Worlds of atoms: who plays in them, small and random ones, checks, and rules switched off."""
