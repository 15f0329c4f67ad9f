"""Which trainings can go across steps, see `cross_step`, and when they must wait."""

from typing import Any

import keras
import tensorflow as tf

from tf_byteps.private.keras import BaseOptimizer, Trainer
from tf_byteps.private.keras_tensorflow import TensorFlowTrainer
from tf_byteps.strategy import batch_handlers
from tf_byteps.tables import layout as layouts

_READ_NO_WEIGHTS = (
    keras.callbacks.ProgbarLogger,
    keras.callbacks.History,
    keras.callbacks.TerminateOnNaN,
)


def may_read_weights(callback: keras.callbacks.Callback) -> bool:
    """Whether a callback may look at the weights after a batch.

    Args:
        callback: a `keras.callbacks.Callback`. It says that it does not by an attribute
            `reads_weights = False`.
    """
    if not getattr(callback, "reads_weights", True) or type(callback) in _READ_NO_WEIGHTS:
        return False
    return bool(batch_handlers.own_handlers(callback))


def why_not(model: keras.Model) -> Any:
    """Why a training must use plain steps.

    Args:
        model: a compiled and built `keras.Model`.

    Returns:
        The end of a sentence; `None` if it can go across steps.
    """
    for problem in (_model_problem(model), _optimizer_problem(model.optimizer)):
        if problem:
            return f"{problem}, so that plain steps are used"
    return None


def _model_problem(model: keras.Model) -> Any:
    if model.run_eagerly or tf.config.functions_run_eagerly():
        return "steps run eagerly"
    if type(model).train_step is not TensorFlowTrainer.train_step:
        return f"{type(model).__name__} has a train_step of its own"
    if type(model).compute_metrics is not Trainer.compute_metrics:
        return f"{type(model).__name__} has a compute_metrics of its own, which may use weights"
    if not model.trainable_weights:
        return "the model has nothing to train"
    for layer in model._flatten_layers():
        if getattr(layer, "synchronized", False):
            return f"the layer {layer.name!r} exchanges statistics in its forward pass"
    if layouts.any_of(model.trainable_weights):
        return "the model has tables whose rows are spread over the workers"
    return None


def _optimizer_problem(optimizer: keras.optimizers.Optimizer) -> Any:
    if optimizer is None:
        return "the model has no optimizer"
    own = type(optimizer)
    # DistributedOptimizer leaves all to the strategy.
    if getattr(own, "byteps_base", own).apply is not BaseOptimizer.apply:
        return f"the optimizer {own.__name__} decides by all gradients together what to do"
    if not optimizer.built:
        return "the optimizer has not been built"
    if optimizer.global_clipnorm:
        return "global_clipnorm needs all gradients before the first update"
    if optimizer.gradient_accumulation_steps:
        return "gradient_accumulation_steps leaves out the exchange in most steps"
    if optimizer.loss_scale_factor is not None:
        return "loss_scale_factor changes gradients before their exchange"
    if any(map(optimizer._overwrite_variable_with_gradient, optimizer._trainable_variables)):
        return "some variables are overwritten with their gradients"
    return None
