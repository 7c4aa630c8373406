"""Gang: jobs of fixed size in the order of a queue, with EASY backfill, quotas and topology-aware placement."""
