"""Where sections come from: runs (in memory or on Spark), sweeps and plans."""
