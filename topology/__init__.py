"""Facts of the cluster: nodes, tiers, minipods, links, health. A leaf: knows no other room."""
