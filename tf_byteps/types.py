"""Types that annotations share, without loading Keras or TensorFlow."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

if TYPE_CHECKING:
    import keras
    import tensorflow as tf

#: What is exchanged: a tensor, or the rows of one.
Exchanged: TypeAlias = "tf.Tensor | tf.IndexedSlices"
#: What backpropagation has for a variable; `None` where it has nothing.
Gradient: TypeAlias = "tf.Tensor | tf.IndexedSlices | None"
#: What a gradient is of: with a tape also a tensor.
Variable: TypeAlias = "keras.Variable | tf.Variable | tf.Tensor"
#: What `tf.convert_to_tensor` takes.
TensorLike: TypeAlias = (
    "Variable | np.ndarray | np.generic | float | bool | str | bytes | Sequence[Any]"
)
#: Keras's optimizers, those with others inside, too.
Optimizer: TypeAlias = "keras.optimizers.Optimizer"
#: What an exchange takes: a tensor or what converts to one, or rows.
ExchangeInput: TypeAlias = "TensorLike | tf.IndexedSlices"
#: What Keras gives callbacks: names and values.
Logs: TypeAlias = dict[str, Any] | None
#: Where files are.
Path: TypeAlias = str | os.PathLike[str]
