"""What happens around the steps, in `fit`, `evaluate` and `predict`."""
