"""A second implementation of the seam, a log in SQLite: nothing outside this folder knows of it."""
