"""Models and optimizers that were made outside the strategy's scope.

Keras ties each to the strategy in whose scope it was made. What was made outside any becomes a
`BytePSStrategy`'s when it is first used with it: its variables are plain ones, inside the scope and
outside.
"""

import logging
import weakref

import keras
import tensorflow as tf

from tf_byteps import runtime
from tf_byteps.exchange.strategies import is_ours
from tf_byteps.private.tensorflow import distribute_lib

_logger = logging.getLogger("tf_byteps")
_warned_of = weakref.WeakSet()


def adopt_model(model: keras.Model) -> None:
    """Makes a Keras model the current `BytePSStrategy`'s, if there is one and it is no one's yet.

    Args:
        model: a `keras.Model`.
    """
    strategy = tf.distribute.get_strategy()
    if model._distribute_strategy is None and is_ours(strategy):
        model._distribute_strategy = strategy
        # They were traced without it.
        model.train_function = model.test_function = model.predict_function = None


def warn_if_alone(model: keras.Model) -> None:
    """Warns, once for each model, of a training that no strategy and no other worker knows of.

    Args:
        model: a `keras.Model` that begins to train and is no `BytePSStrategy`'s.
    """
    is_reduced = hasattr(model.optimizer, "register_local_var")  # a DistributedOptimizer
    if is_reduced or model in _warned_of or not runtime.is_initialized() or runtime.size() == 1:
        return
    _warned_of.add(model)
    _logger.warning(
        "the model %r trains on this worker alone, though there is a BytePSStrategy: make it, "
        "compile it or call fit within `with strategy.scope():`",
        model.name,
    )


def is_foreign(optimizer: keras.optimizers.Optimizer) -> bool:
    """Whether an optimizer belongs to a strategy of another kind."""
    strategy = optimizer._distribution_strategy
    is_default = isinstance(strategy.extended, distribute_lib._DefaultDistributionExtended)
    return not is_default and not is_ours(strategy)


def adopt_optimizer(optimizer: keras.optimizers.Optimizer) -> None:
    """Makes an optimizer the current `BytePSStrategy`'s, if there is one.

    Args:
        optimizer: a `keras.optimizers.Optimizer`.

    Raises:
        ValueError: it belongs to a strategy of another kind.
    """
    strategy, before = tf.distribute.get_strategy(), optimizer._distribution_strategy
    if before is strategy or not is_ours(strategy):
        return
    if is_foreign(optimizer):
        raise ValueError(
            f"the optimizer {optimizer.name!r} was made in the scope of a {type(before).__name__}, "
            "which a BytePSStrategy cannot use: make it in the scope of the BytePSStrategy, or "
            "outside any"
        )
    optimizer._distribution_strategy = strategy
