"""Which models belong to a `BytePSStrategy`: those made, compiled or trained in its scope."""

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

from tf_byteps.exchange.strategies import strategy_of

_local = threading.local()


@contextlib.contextmanager
def entered(strategy: object) -> Iterator[None]:
    """Makes a strategy the current one of this thread."""
    outer, _local.strategy = current(), strategy
    try:
        yield
    finally:
        _local.strategy = outer


def current() -> Any:
    """The strategy in whose scope this thread is, or `None`."""
    return getattr(_local, "strategy", None)


def adopt(model: Any) -> Any:
    """Makes a Keras model the current strategy's, if it is no one's yet; returns its strategy."""
    strategy = current()
    if strategy is not None and strategy_of(model) is None:
        model.distribute_strategy = strategy
        # They were made without it.
        model.train_function = model.test_function = model.predict_function = None
    return strategy_of(model)
