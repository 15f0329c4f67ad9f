"""What exchanges need in functions that XLA compiles, and nowhere else."""
