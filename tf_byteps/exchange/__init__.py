"""What exchanges need in every framework: names, reductions, compressors, objects, NumPy arrays.

Nothing here imports TensorFlow, Keras or JAX. `tf_byteps.ops` has TensorFlow's operations.
"""
