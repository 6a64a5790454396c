"""Models: images as decoded (0 to 255) to logits, whatever stands between."""
