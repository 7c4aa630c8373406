"""Problems: workload and plan types, performance models, formulations, heuristics, checks."""
