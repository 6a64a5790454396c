"""What a deployment does once: register the training's environment and code, datastores and computes."""
