"""Training on several GPUs, against TensorFlow's own strategies: `python -m benchmarks.gpu`."""
