"""What tests that compare whole trainings on JAX have in common: environment, parameters."""

import pytest

ENVIRONMENT = {"KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu", "BYTEPS_OPERATION_TIMEOUT": "240"}
# As some programs' dtype asks for; without it JAX makes float32 of float64.
IN_FLOAT64 = {**ENVIRONMENT, "JAX_ENABLE_X64": "1"}


def on_two_and_three_workers(names, quick, with_three_workers):
    """Parameters `name` and `workers` of a test.

    Args:
        names: of what there is to run, each on two workers.
        quick: those that `make test` runs, on two workers; the others are in `make test-long`.
        with_three_workers: those that run on three workers, too.
    """
    return [
        pytest.param(
            name,
            workers,
            id=f"{name}-{workers}",
            marks=() if name in quick and workers == 2 else pytest.mark.long,
        )
        for name in names
        for workers in (2, 3)
        if workers == 2 or name in with_three_workers
    ]
