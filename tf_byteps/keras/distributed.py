"""What distributed optimizers of all frameworks have in common.

Such an optimizer is the given one in a subclass that bears the same name, so that a saved model
opens in plain Keras.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import keras

from tf_byteps.exchange.gradient_arguments import GradientArguments
from tf_byteps.exchange.optimizers import optimizers_of
from tf_byteps.private.keras import object_registration
from tf_byteps.types import Variable

if TYPE_CHECKING:
    _Optimizer = keras.optimizers.Optimizer
else:  # the class that is given comes behind it
    _Optimizer = object


class DistributedBase(_Optimizer):
    """What is put before an optimizer's own class. `DistributedOptimizer` fills in the attributes.

    Attributes:
        byteps_base: the optimizer's own class.
        byteps_reduction: how gradients are reduced.
        byteps_multiplier: a number that reduced gradients are multiplied by.
    """

    byteps_base: type[keras.optimizers.Optimizer]
    byteps_reduction: Any
    byteps_multiplier = 1.0

    @classmethod
    def from_config(cls, config: Mapping[str, Any], *args: object, **kwargs: object) -> Any:
        return cls.byteps_base.from_config(config, *args, **kwargs)

    def register_local_var(self, variable: Variable) -> None:
        """Leaves the gradient of a variable as each worker computes it.

        Args:
            variable: a `keras.Variable` or `tf.Variable` that this optimizer updates.
        """
        self.byteps_reduction.register_local(variable)

    def _reduced(self, grads: Iterable[Any], variables: Iterable[Any]) -> list[Any]:
        return self.byteps_reduction.reduce(list(grads), list(variables), self.byteps_multiplier)

    def _refuse_arguments(self) -> None:
        """Where a `BytePSStrategy` reduces the gradients."""
        reduction = self.byteps_reduction
        if not reduction.is_plain or reduction.has_local or self.byteps_multiplier != 1:
            raise ValueError(
                "within BytePSStrategy the strategy reduces the gradients: leave out the "
                "arguments of DistributedOptimizer that say how, and what stays local, or "
                "train without the strategy"
            )


# The classes that are put before an optimizer's, and before a `LossScaleOptimizer`'s.
Classes = tuple[type[DistributedBase], type[DistributedBase]]


def innermost(optimizer: keras.optimizers.Optimizer) -> Any:
    """The optimizer within a `LossScaleOptimizer`; any other one itself."""
    return getattr(optimizer, "inner_optimizer", optimizer)


def distributed_of(model: keras.Model) -> list[Any]:
    """A model's distributed optimizers: its own, and what a `train_step` of the program's finds
    among its attributes."""
    return [each for each in optimizers_of(model) if isinstance(each, DistributedBase)]


def view(
    optimizer: keras.optimizers.Optimizer,
    classes: Classes,
    reduction: GradientArguments,
    multiplier: float,
) -> Any:
    """The optimizer as an object of the distributed subclass. Both objects share all state."""
    cls = _subclass(type(optimizer), classes, reduction, multiplier)
    seen = object.__new__(cls)
    object.__setattr__(seen, "__dict__", optimizer.__dict__)
    return seen


def distribute_loss_scale(optimizer: keras.optimizers.Optimizer, classes: Classes) -> None:
    """Makes a new `LossScaleOptimizer` around a distributed optimizer distributed itself, in place.

    Otherwise each worker would decide by its own gradients whether to skip a step, and those that
    do not skip would wait for the others for ever.
    """
    inner = innermost(optimizer)
    cls = _subclass(type(optimizer), classes, inner.byteps_reduction, inner.byteps_multiplier)
    object.__setattr__(optimizer, "__class__", cls)


def _subclass(
    base: type, classes: Classes, reduction: GradientArguments, multiplier: float
) -> type:
    mixin = classes[issubclass(base, keras.optimizers.LossScaleOptimizer)]
    attributes = {
        "__module__": base.__module__,
        "__qualname__": base.__qualname__,
        "__doc__": base.__doc__,
        "byteps_base": base,
        "byteps_reduction": reduction,
        "byteps_multiplier": multiplier,
    }
    cls = type(base.__name__, (mixin, base), attributes)
    if base in object_registration.GLOBAL_CUSTOM_NAMES:
        # So that it is saved under the name of a user's registered class.
        object_registration.GLOBAL_CUSTOM_NAMES[cls] = object_registration.GLOBAL_CUSTOM_NAMES[base]
    return cls


def accumulate(optimizer: keras.optimizers.Optimizer, steps: int) -> None:
    """Turns on Keras's gradient accumulation, for an optimizer that may be built already."""
    if not isinstance(steps, int) or steps < 1:
        raise ValueError(
            f"backward_passes_per_step must be an integer of at least 1, got {steps!r}"
        )
    if optimizer.gradient_accumulation_steps:
        raise ValueError(
            f"the optimizer has gradient_accumulation_steps={optimizer.gradient_accumulation_steps}"
            ": leave out backward_passes_per_step"
        )
    optimizer.gradient_accumulation_steps = steps
    # Keras counts steps there, and divides.
    optimizer._iterations.assign(optimizer._iterations * steps)
    if optimizer.built:
        optimizer._accumulated_gradients = [
            optimizer.add_variable_from_reference(variable, name="gradient_accumulator")
            for variable in optimizer._trainable_variables
        ]
