"""Programs that a benchmark starts in processes of their own, in the environment that they measure."""
