"""Pictures of plans. Pure drawing: reads a snapshot and an outcome, solves nothing."""
