"""Matrix form, backends, limits, result, worker pool. A leaf: knows no cluster and no job."""
