"""The registry: whether a model is good enough, whether it is better than the current one, and which is current."""
