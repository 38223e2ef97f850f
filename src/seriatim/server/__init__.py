"""The sequencer server: nodes of a tree, their journals and ports, from one configuration file."""
