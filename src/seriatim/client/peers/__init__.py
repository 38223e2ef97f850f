"""The client of peers without a broker."""
