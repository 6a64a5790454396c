"""`landfall doctor`: check a deployment, and show the command that fixes each problem."""
