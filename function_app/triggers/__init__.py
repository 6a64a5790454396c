"""The triggers: decode one payload, call one step, nothing else."""
