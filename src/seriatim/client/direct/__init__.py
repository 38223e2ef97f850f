"""What peers and overlay share: a machine in this process notifies directly, without sequencers and journals."""
