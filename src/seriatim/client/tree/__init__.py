"""The client of the sequencing tree."""
