"""When and where large pre-training jobs begin, over a horizon of weeks."""
