"""Sequencer nodes of the tree, served: hosts, standbys, metrics."""
