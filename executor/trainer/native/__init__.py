"""The engine for any plan: stages with degrees and shares of their own, on the pipeline schedules of torch."""
