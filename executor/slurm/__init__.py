"""What Slurm is told of a plan: actions, and the commands that carry them out. Nothing here runs any."""
