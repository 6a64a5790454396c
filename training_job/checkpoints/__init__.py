"""Checkpoints: weights, optimizer and position, in files that any numpy reads."""
