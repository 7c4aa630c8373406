"""The loop closed on Slurm: its queue is watched, jobs that wait are sent to the nodes of a plan."""
