"""Gang: jobs of fixed size by FIFO or priority, with EASY backfill, quotas and topology-aware placement."""
