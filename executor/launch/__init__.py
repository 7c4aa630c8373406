"""Starting, watching and stopping the processes of a deployment, on this machine, over SSH, under Slurm, Kubernetes."""
