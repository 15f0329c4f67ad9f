"""Keras 2 (`tf_keras`) in the scope of a `BytePSStrategy`: its trainer is refused.

It takes the pieces of a batch for equally long, and expects a strategy to give it the results of
all workers' replicas: with several workers it would train other weights, and `predict` would return
one worker's rows. Loops with `strategy.run` need nothing of that trainer.
"""

import sys
from collections.abc import Callable
from typing import Any

from tf_byteps import runtime
from tf_byteps.errors import on_all_workers
from tf_byteps.exchange.strategies import is_ours
from tf_byteps.wrapping import wrap

_METHODS = ("compile", "fit", "evaluate", "predict")
_METHODS += ("train_on_batch", "test_on_batch", "predict_on_batch")
_refuses = False


def refuse_trainer() -> None:
    """Does so from now on, if the program has imported Keras 2. Costs nothing otherwise."""
    global _refuses
    if _refuses or "tf_keras" not in sys.modules:
        return
    model = getattr(sys.modules["tf_keras"], "Model", None)
    if model is None:  # it is being imported
        return
    _refuses = True
    for method in _METHODS:
        wrap(model, method, _refuse)


def _refuse(original: Callable[..., Any], self: Any, *args: object, **kwargs: object) -> Any:
    if is_ours(self.distribute_strategy) and runtime.size() > 1:
        raise on_all_workers(
            NotImplementedError(
                f"{original.__name__} of a tf_keras model (Keras 2) does not work with "
                "BytePSStrategy: with several workers it would train other weights, and predict "
                "only some of the rows; use Keras 3 (import keras), or a training loop of your own "
                "with strategy.run"
            )
        )
    return original(self, *args, **kwargs)
