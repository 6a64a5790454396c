"""Detects dead and stuck ranks, and requests to stop, before money or progress is lost."""
