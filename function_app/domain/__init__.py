"""Records, states and decisions without any I/O."""
