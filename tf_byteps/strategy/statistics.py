"""Moving statistics, such as those of BatchNormalization, over all workers.

During an epoch each worker's statistics follow its own rows. At the end of the epoch, before they
are used by validation or saved, the workers take their mean and go on from it.
"""

import collections
import weakref

from tf_byteps import runtime
from tf_byteps.strategy.joined import reduce_variables

_in_epoch = weakref.WeakSet()


def begin_epoch(model):
    """Notes that a model's statistics are about to become each worker's own."""
    _in_epoch.add(model)


def end_epoch(model):
    """Averages a Keras model's statistics if it has trained since the last call. A collective.

    Args:
        model: a `keras.Model` whose workers have all finished the same epoch.
    """
    if model not in _in_epoch:
        return
    _in_epoch.discard(model)
    if runtime.size() == 1:
        return
    groups = collections.defaultdict(list)
    for variable in _statistics(model):
        groups[variable.dtype].append(variable)
    for dtype, variables in groups.items():
        reduce_variables(variables, "average", f"moving statistics/{dtype.name}")


def _statistics(model):
    """Floating-point variables that no optimizer changes, but not weights that are frozen."""
    variables = {}
    for layer in model._flatten_layers():
        # Statistics that are synchronized in every step are the same everywhere already.
        if not getattr(layer, "synchronized", False):
            for variable in layer._non_trainable_variables:
                if variable.value.dtype.is_floating:
                    variables[id(variable)] = variable.value
    return list(variables.values())
