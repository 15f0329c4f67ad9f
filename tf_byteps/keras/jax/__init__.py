"""`tf_byteps.keras` on JAX."""
