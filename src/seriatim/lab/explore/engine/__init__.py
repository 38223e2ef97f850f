"""The explorer itself: worlds, runs, the search and its checks, whatever the protocol."""
