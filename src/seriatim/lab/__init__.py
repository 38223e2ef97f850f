"""The parts that are not needed to run the product: the simulator, the explorer, the papers as printed, their
experiments."""
