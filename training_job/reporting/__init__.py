"""What a training says of itself, while it runs and at its end. The root speaks for all."""
