"""The gradients of a step, summed over the workers once: with a strategy or without one."""
