"""What happens within one training step."""
