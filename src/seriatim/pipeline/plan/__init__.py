"""Which topics are coupled, what that costs, and where topics should live: from subscriptions to `plan.toml`."""
