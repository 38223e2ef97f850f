"""The common part of tree and atoms: a broker carries the events, and a cluster behind it orders them."""
