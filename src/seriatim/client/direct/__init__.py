"""What peers and overlay share: events come directly, without sequencers and journals."""
