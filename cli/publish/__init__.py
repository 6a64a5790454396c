"""Register what a deployment needs once: the training's environment and code, datastores and clusters."""
