"""What Slurm writes as JSON: nodes, partitions, queue, reservations and accounting, and its topologies."""
