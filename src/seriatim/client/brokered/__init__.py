"""What tree and atoms share: a broker carries the events, and a cluster behind it orders them."""
