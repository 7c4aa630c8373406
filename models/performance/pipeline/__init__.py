"""Pipeline schedules: who works on which micro-batch when, simulated exactly, and as formulas and bounds."""
