"""What survives a restart: plans, comparisons, snapshots, measurements."""
