"""The reports of a training, while it runs and at its end. Only the root writes."""
