"""Workloads that are made: from traces, with deadlines, with failures. Same seed, same workload."""
