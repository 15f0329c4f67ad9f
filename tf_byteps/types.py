"""Types that annotations share; `Variable` and `Optimizer` without loading Keras."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import tensorflow as tf

if TYPE_CHECKING:
    import keras

#: What is exchanged: a tensor, or the rows of one.
Exchanged: TypeAlias = tf.Tensor | tf.IndexedSlices
#: What backpropagation has for a variable; `None` where it has nothing.
Gradient: TypeAlias = tf.Tensor | tf.IndexedSlices | None
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
