"""How weights change: learning rates and optimizers."""
