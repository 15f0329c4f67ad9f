"""Evaluations and predictions outside of `fit`: workers meet in them, and leave them together."""

import contextlib
from collections.abc import Iterator
from typing import Any

from tf_byteps import runtime
from tf_byteps.exchange import leaving


@contextlib.contextmanager
def of_fit(model: Any, method: str) -> Iterator[None]:
    """Around a call of a model outside of `fit`. A collective where it begins.

    A training may have ended by an exception on some worker before. Then the model's variables are
    set to worker 0's values. An exception that ends the call here ends it on all workers.

    Args:
        model: a `keras.Model` of a `BytePSStrategy`.
        method: of the model: `evaluate` or `predict`.

    Raises:
        ValueError: on all workers, if they do not call the same method.
    """
    if runtime.size() == 1:
        yield
        return
    with leaving.telling_the_others(method):
        _, after_failure = leaving.meet(None, method)
        if after_failure:
            model.distribute_strategy.extended.synchronize_model(model)
        yield
