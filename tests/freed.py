"""Whether the weights of a model are freed with it, for programs of tests."""

import gc
import weakref


def weights_after(make, *arguments):
    """The paths of weights whose memory is still there when their model is not.

    Args:
        make: returns a compiled `keras.Model` to which nothing else refers.
        *arguments: of it.
    """
    model = make(*arguments)
    optimizers = _optimizers(model)
    weights = [*model.weights, *(each for of in optimizers for each in of.variables)]
    of_memory = [(weight.path, weakref.ref(_with_memory(weight))) for weight in weights]
    assert len(of_memory) > len(optimizers)
    del model, optimizers, weights
    gc.collect()
    return [path for path, each in of_memory if each() is not None]


def _with_memory(weight):
    """What has the memory of a `keras.Variable`: an array of JAX, or of TensorFlow's variable its
    handle, because functions that TensorFlow keeps refer to that alone."""
    return getattr(weight.value, "handle", weight.value)


def _optimizers(model):
    """The model's optimizer, and those of its tables."""
    of_tables = [getattr(layer, "table_optimizers", {}).values() for layer in model.layers]
    return [model.optimizer, *(optimizer for each in of_tables for optimizer in each)]
