"""`BytePSStrategy`: data-parallel training through `tf.distribute` and Keras."""

from tf_byteps.strategy.strategy import BytePSStrategy

__all__ = ["BytePSStrategy"]
