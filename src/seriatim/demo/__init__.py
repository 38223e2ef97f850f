"""The demo: a shop at three sites, with and without ordering."""
