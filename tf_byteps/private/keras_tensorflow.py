"""All that tf_byteps uses of Keras's TensorFlow backend beyond its public interface."""

# ruff: noqa: F401

from keras.src.backend.tensorflow import (
    core as keras_core,
    nn as keras_nn,
    trainer as keras_trainer,
)
from keras.src.backend.tensorflow.optimizer import TFOptimizer
from keras.src.backend.tensorflow.trainer import TensorFlowTrainer, TFEpochIterator
