"""Data of trainings: corpora of tokens, cut into windows, blended; every sample has a number."""
