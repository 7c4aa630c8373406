"""Cases by policy and planner."""
