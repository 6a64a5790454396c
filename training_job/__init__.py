"""The training, which runs on every rank under mpirun. Start it with ``python -m training_job.train``."""
