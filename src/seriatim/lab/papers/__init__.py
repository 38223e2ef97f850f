"""The algorithms of the papers as they were printed, and their baselines, for comparison."""
