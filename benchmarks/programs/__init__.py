"""What the processes of a benchmark run; `benchmarks.sessions` calls their functions."""
