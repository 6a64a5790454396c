"""Checkpoints: weights, optimizer and position, in files that numpy alone can read."""
