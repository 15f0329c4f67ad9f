"""Loading models so that training goes on with all workers."""

import os
from collections.abc import Iterable, Mapping
from typing import Any, cast

import keras

from tf_byteps.exchange.compression import Compression
from tf_byteps.exchange.compression_choice import CompressionChoice
from tf_byteps.keras.optimizer import DistributedOptimizer


def load_model(
    filepath: str | os.PathLike[str],
    custom_optimizers: Iterable[type] | None = None,
    custom_objects: Mapping[str, Any] | None = None,
    compression: CompressionChoice = Compression.none,
    **options: Any,
) -> keras.Model:
    """Loads a Keras model and makes its optimizer distributed; the optimizer's state is kept.

    Args:
        filepath: see `keras.models.load_model`. Every worker must be able to read it.
        custom_optimizers: a list of optimizer classes that the file names and Keras does not know.
        custom_objects: a dict of names and other classes or functions of that kind.
        compression: see `DistributedOptimizer`.
        **options: other arguments of `DistributedOptimizer`.

    Returns:
        A `keras.Model`, compiled if it was saved so.

    Raises:
        ValueError: the file cannot be read; see `keras.models.load_model`.

    Example:

    >>> model = tf_byteps.keras.load_model("model.keras")
    >>> model.fit(images, labels)
    """
    objects = {cls.__name__: cls for cls in custom_optimizers or []}
    objects.update(custom_objects or {})
    model = cast(Any, keras.models.load_model(filepath, custom_objects=objects))
    if getattr(model, "optimizer", None) is not None:
        model.optimizer = DistributedOptimizer(model.optimizer, compression=compression, **options)
        # The file says what was best where it was written.
        model.jit_compile = model._resolve_auto_jit_compile()
    return model
