"""From a request to a job, followed to its end, to a registered model."""
