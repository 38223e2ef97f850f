"""The common part of peers and overlay: events come directly, without sequencers and journals."""
