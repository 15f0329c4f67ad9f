"""`tf_byteps.keras` on TensorFlow."""
