"""ElasticFlow: deadlines that are guaranteed when a job is admitted, and elastic scaling of what is left."""
