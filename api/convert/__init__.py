"""From documents to the types of the planner and back."""
