"""Training with TensorFlow without a strategy: the gradient tape, variables, objects, the runtime's
numbers. What is for Keras only is in `tf_byteps.keras`; `tf_byteps` itself has all public names."""
