"""`BytePSStrategy` where Keras runs on JAX: the same `Model.fit`, without TensorFlow."""
