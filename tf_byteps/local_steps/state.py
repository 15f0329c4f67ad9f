"""What the outer rounds of a training keep, for checkpoints: the same on all workers.

A checkpoint that is taken where the workers have the global weights has all that outer rounds need
to go on: the outer momentum, and how many rounds there were, by which the momentum rises. It does
not depend on the number of workers or of fragments.

Memory: a copy of the weights if there is momentum, and eight bytes for each of them.
"""

from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tf_byteps.local_steps.settings import LocalSteps
from tf_byteps.ops import store
from tf_byteps.private.keras import KerasSaveable
from tf_byteps.private.tensorflow import AutoTrackable, ResourceVariable


class OuterState(KerasSaveable, AutoTrackable):
    """The outer optimizer's variables. Keras and `tf.train.Checkpoint` save and restore them.

    What was read before the weights are known is taken when they are.

    Args:
        settings: a `LocalSteps`.

    Attributes:
        steps: a scalar variable of int64: how many steps of the warm-up were made.
        rounds: a variable of int64, how many rounds each weight has had; `None` before `build`.
        momenta: a list of a variable for each weight; `None` before `build`, or without momentum.
    """

    def __init__(self, settings: LocalSteps) -> None:
        self._has_momentum = settings.has_momentum
        self._read: Any = self._no_dependency({})  # pyright: ignore[reportAttributeAccessIssue]
        self.steps: Any = _variable(np.int64(0))
        self.rounds: Any = None
        self.momenta: Any = None  # not an empty list: what is restored later would go into that
        self._of: Any = None

    def build(self, variables: Sequence[tf.Variable]) -> None:
        """Makes the variables, once.

        Args:
            variables: the weights.
        """
        if self.rounds is not None:
            return
        self._of = self._no_dependency([id(each) for each in variables])  # pyright: ignore[reportAttributeAccessIssue]
        self.rounds = _variable(np.zeros(len(variables), np.int64))
        if self._has_momentum:
            with tf.init_scope():
                self.momenta = [
                    _variable(tf.zeros_like(store.wide(each)), each.device) for each in variables
                ]
        if self._read:
            self._take(self._read)
            self._read = self._no_dependency({})  # pyright: ignore[reportAttributeAccessIssue]

    def fits(self, variables: Sequence[tf.Variable]) -> bool:
        """Whether it is, or may become, the state of these weights."""
        return self.rounds is None or self._of == [id(each) for each in variables]

    def named(self) -> Iterator[tuple[str, Any]]:
        """Pairs of a name and a variable, those that there are."""
        yield "outer/steps", self.steps
        if self.rounds is not None:
            yield "outer/rounds", self.rounds
            yield from ((f"outer/momentum/{n}", each) for n, each in enumerate(self.momenta or []))

    def save_own_variables(self, store: MutableMapping[str, Any]) -> None:
        """Keras saves."""
        for name, variable in self.named():
            store[name.replace("/", "_")] = variable.numpy()

    def load_own_variables(self, store: Mapping[str, Any]) -> None:
        """Keras loads. A file without it, of a program without local steps, changes nothing.

        Raises:
            ValueError: it belongs to other weights.
        """
        read = {name: np.array(store[name]) for name in store.keys()}  # noqa: SIM118 - no mapping
        if not read:
            return
        if self.rounds is None:
            self._read = self._no_dependency(read)  # pyright: ignore[reportAttributeAccessIssue]
        else:
            self._take(read)

    def _obj_type(self) -> str:
        return "Optimizer"  # of the kinds that Keras knows

    def _trackable_children(self, save_type: str = "checkpoint", **kwargs: Any) -> dict[str, Any]:
        return {} if save_type == "savedmodel" else super()._trackable_children(save_type, **kwargs)  # pyright: ignore[reportAttributeAccessIssue]

    def _take(self, read: Mapping[str, np.ndarray]) -> None:
        own = {name.replace("/", "_"): variable for name, variable in self.named()}
        for name, variable in own.items():
            if name in read and read[name].shape != tuple(variable.shape):
                raise ValueError(
                    f"the saved {name} has the shape {read[name].shape}, and that of this model "
                    f"{tuple(variable.shape)}: the file belongs to another model, or other layers "
                    "of it were trainable"
                )
        for name, variable in own.items():
            if name in read:
                variable.assign(read[name])


def _variable(value: Any, device: str | None = None) -> Any:
    # Not `tf.Variable`: the workers need not agree about it before they train.
    with tf.init_scope(), tf.device(device):
        return ResourceVariable(value, trainable=False)
