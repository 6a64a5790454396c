"""What a training reports, while it runs and at its end. Only the root writes."""
