"""Stations of sequencing atoms, served."""
