"""What keeps a training from being lost, and a dead rank from being paid for."""
