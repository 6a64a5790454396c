"""`landfall doctor`: whether a deployment has all that it needs, and what mends what it lacks."""
