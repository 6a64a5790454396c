"""Benchmarks of what the design promises: `python -m bench [NAME]`."""
