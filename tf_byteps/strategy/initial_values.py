"""Initial values from worker 0, without trusting that all workers create the same variables
(protocol rule 28).

Broadcasting each variable when it is created, as `MultiWorkerMirroredStrategy` does, hangs as soon
as one worker creates one variable more. So variables are only noted when they are created. Before
the first step the workers compare their lists; if they differ, all of them raise an error that
names the difference, and nothing was sent in vain.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from tf_byteps import runtime
from tf_byteps.exchange.object_gather import gather_objects
from tf_byteps.exchange.optimizers import optimizers_of
from tf_byteps.strategy import variable_kinds
from tf_byteps.strategy.exchanged_variables import OnReadVariable
from tf_byteps.strategy.step import local_steps
from tf_byteps.tables import layout as layouts
from tf_byteps.training.initial_values import synchronize
from tf_byteps.types import Variable

_BEGUN = "_byteps_begun"  # of a `keras.Variable` of kind `own`: a training has begun with it


class InitialValues:
    """The variables of one strategy that worker 0's values have not reached yet."""

    def __init__(self) -> None:
        self._created = []  # weak references, in order of creation

    def created(self, variable: Variable | None) -> None:
        """Notes a variable. Keras's metrics are left out: they start at zero everywhere."""
        synchronization = getattr(variable, "synchronization", None)
        is_metric = synchronization == tf.VariableSynchronization.ON_READ
        if not is_metric or isinstance(variable, OnReadVariable):
            self._created.append(weakref.ref(variable))

    def synchronize_created(self) -> None:
        """Synchronizes what was created since the last call; without anything new it does not
        communicate.

        The variables' paths are not known here, so that they are told apart by name and order of
        creation.
        """
        if runtime.size() == 1:
            return
        created, self._created = self._created, []
        if created:
            # What nobody holds any more, but refers to itself, is otherwise freed on some workers
            # earlier than on others, and their lists differ.
            gc.collect()
        alive = [reference() for reference in created]
        uninitialized = [variable for variable in alive if _is_uninitialized(variable)]
        # A tf.function that creates variables is traced first, then initializes them, then is
        # traced again.
        self._created = [weakref.ref(variable) for variable in uninitialized]
        ready = [
            variable
            for variable in alive
            if variable is not None
            and all(variable is not other for other in uninitialized)
            and layouts.of(variable) is None
        ]
        if ready:
            synchronize("variables created in the scope", [(v.name, v) for v in ready])

    def synchronize_model(self, model: keras.Model) -> None:
        """Synchronizes all variables of a Keras model and its optimizers, and whatever else was
        created meanwhile. Those of kind `own` only once, before any worker has trained with them;
        weights not where a quorum goes on with other workers.
        """
        if runtime.size() == 1:
            return
        variables, optimizers = list(model.variables), optimizers_of(model)
        for optimizer in optimizers:
            variables += optimizer.variables
        variables = {id(each.value): each for each in variables if layouts.of(each) is None}
        own = variable_kinds.variables(model, variable_kinds.Kind.OWN)
        kept = _begun([*own, *local_steps.inner_state(model, optimizers)])
        kept |= {id(each.value) for each in local_steps.kept_weights(model)}
        named = [(v.path, v.value) for key, v in variables.items() if key not in kept]
        outer = local_steps.outer_state(model)
        named += outer.named() if outer is not None else []
        self._created = [
            r for r in self._created if r() is not None and id(r()) not in {*variables, *kept}
        ]
        synchronize("variables of the model and its optimizer", named)
        self.synchronize_created()


def _begun(own: Sequence[Any]) -> set[int]:
    """The ids of those `tf.Variable`s of kind `own` with which some worker has trained before.

    The others are noted as such. A collective.
    """
    begun = [hasattr(variable, _BEGUN) for variable in own]
    everyone = gather_objects("variables of a worker's own", begun)
    for variable in own:
        setattr(variable, _BEGUN, True)
    return {
        id(variable.value)
        for index, variable in enumerate(own)
        if any(index < len(other) and other[index] for other in everyone)
    }


def _is_uninitialized(variable: Variable | None) -> bool:
    if variable is None:
        return False
    with tf.init_scope():
        try:
            return not bool(tf.raw_ops.VarIsInitializedOp(resource=variable.handle))
        except (
            TypeError,
            ValueError,
            AttributeError,
        ):  # its handle belongs to a graph that is still being traced
            return True
