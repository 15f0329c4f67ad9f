"""What other libraries do not promise to keep: no other module imports it from them."""
