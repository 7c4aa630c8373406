"""What Kubernetes says of a cluster: nodes, topologies of Kueue, KAI and Volcano, pods, workloads of Kueue."""
