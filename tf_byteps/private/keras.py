"""All that tf_byteps uses of Keras beyond its public interface, with any backend.

The list to look at when a new Keras comes. What is replaced there while a program runs is in
`strategy.keras_hooks`.
"""

# ruff: noqa: F401

from keras.src.backend.common.variables import AutocastScope, Variable as KerasVariable
from keras.src.legacy.saving import legacy_h5_format
from keras.src.losses import loss as keras_loss
from keras.src.optimizers.base_optimizer import BaseOptimizer
from keras.src.saving import object_registration, saving_lib
from keras.src.saving.keras_saveable import KerasSaveable
from keras.src.trainers.data_adapters import array_slicing
from keras.src.trainers.data_adapters.array_data_adapter import ArrayDataAdapter
from keras.src.trainers.trainer import Trainer
from keras.src.utils import file_utils
from keras.src.utils.python_utils import is_default, pythonify_logs
