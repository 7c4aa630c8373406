"""The grid planner (Arena sections 3.2 to 3.6)."""
