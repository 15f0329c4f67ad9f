"""Steps that each worker makes by itself, and the outer rounds in which the workers come together.

A worker trains on its own rows for some steps without exchanging anything. Then the workers
average how far their weights have moved, and an outer optimizer takes a step with that average:
plain averaging (local SGD), or SGD with Nesterov momentum (DiLoCo, arXiv:2311.08105). With
fragments and a delay the exchange overlaps the next steps (Streaming DiLoCo, arXiv:2501.18512).
"""
