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
    # A function that TensorFlow keeps refers to handles only, and they have the memory.
    handles = [(weight.path, weakref.ref(weight.value.handle)) for weight in weights]
    assert len(handles) > len(optimizers)
    del model, optimizers, weights
    gc.collect()
    return [path for path, handle in handles if handle() is not None]


def _optimizers(model):
    """The model's optimizer, and those of its tables."""
    of_tables = [getattr(layer, "table_optimizers", {}).values() for layer in model.layers]
    return [model.optimizer, *(optimizer for each in of_tables for optimizer in each)]
