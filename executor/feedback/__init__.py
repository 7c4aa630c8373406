"""From metrics files of running jobs to the service that plans them: nothing lost, nothing twice."""
