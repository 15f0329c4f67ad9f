"""`Model.fit` of an elastic job by local steps with a quorum, whose workers come and go.

Nobody goes back. Those that stay keep what they have trained: see `local_steps.rejoining`. They
agree on an epoch and a batch of it to go on with, so that `fit` gets the same data on all. Who
comes takes the global weights, the outer momentum, and the optimizer's state and the values of one
that has been there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from tf_byteps import _engine, runtime
from tf_byteps.elastic import retracing
from tf_byteps.elastic.ends import End, end_of
from tf_byteps.elastic.interface import Rejoining
from tf_byteps.elastic.states import HostsUpdatedInterrupt
from tf_byteps.errors import on_all_workers
from tf_byteps.exchange import host
from tf_byteps.exchange.object_gather import gather_objects
from tf_byteps.exchange.objects import broadcast_object
from tf_byteps.strategy import variable_kinds
from tf_byteps.strategy.step import local_steps
from tf_byteps.training import initial_values
from tf_byteps.training.variables import tf_variable

if TYPE_CHECKING:
    import keras

    from tf_byteps.elastic.keras_states import KerasState

_EPOCH, _BATCH = "epoch", "batch"  # values that `UpdateEpochStateCallback` and others count


def coming_change() -> Exception | None:
    """What ends a training whose workers change, after a step: a loss, or a meeting; or `None`."""
    if failure := _engine.worker_failure():
        return tf.errors.UnavailableError(None, None, failure)
    reason = runtime.coming_change() if runtime.config().elastic else ""
    return HostsUpdatedInterrupt(reason) if reason else None


class QuorumFit(Rejoining, local_steps.Membership):
    """What a state does about a model that `fit` trains so. Not thread-safe.

    Args:
        model: a built and compiled `keras.Model`, whose strategy has a quorum.
    """

    def __init__(self, model: keras.Model) -> None:
        self._model = model
        retracing.keep_traces()

    def look(self) -> None:
        if (change := coming_change()) is not None:
            raise on_all_workers(change)

    def is_change(self, error: BaseException) -> bool:
        if isinstance(error, HostsUpdatedInterrupt):
            return True
        return end_of(error, goes_back=False)[0] is not End.FAULT

    def sync(self, state: KerasState) -> None:
        rounds = local_steps.rounds_of_quorum(self._model, self)
        values = state._values()
        mine = [rounds.has_begun, values.get(_EPOCH), values.get(_BATCH)]
        everyone = gather_objects("elastic/places", mine) if runtime.size() > 1 else [mine]
        stays = [rank for rank, (has_begun, *_) in enumerate(everyone) if has_begun]
        is_new = not rounds.has_begun
        if len(stays) < runtime.size():
            self._welcome(state, is_new, stays[0] if stays else 0)
        furthest = _furthest(everyone, stays) if stays else [0]
        given = values
        if runtime.size() > 1:
            given = broadcast_object(values, furthest[0], name="elastic/values")
        if runtime.rank() not in furthest:
            state._set(given)
        batches = [everyone[rank][2] for rank in furthest]
        if all(isinstance(each, int) for each in batches):
            quorum = local_steps.quorum_of(self._model)
            state._set({_BATCH: sorted(batches)[-min(quorum, len(batches))]})
        if stays:
            self._average_statistics(len(stays), is_new)
            rounds.rejoin(is_new)
            local_steps.keep_weights(self._model)

    def _welcome(self, state: KerasState, is_new: bool, root_rank: int) -> None:
        """What new workers take, the others get as well, and put their own in its place."""
        keyed = [(each.path, tf_variable(each)) for each in state.variables()]
        own = [] if is_new else [(each, each.numpy()) for _, each in keyed]
        try:
            if runtime.size() > 1:
                what = "variables of the elastic state"
                initial_values.synchronize(what, keyed, root_rank)
        finally:
            for variable, value in own:
                variable.assign(value)

    def _average_statistics(self, staying: int, is_new: bool) -> None:
        """Gives all the mean of what those that stay have: `fit` begins with equal ones."""
        statistics = variable_kinds.variables(self._model, variable_kinds.Kind.STATISTIC)
        if not statistics or runtime.size() == 1:
            return
        values = [tf_variable(each).numpy() for each in statistics]
        parts = [(0.0 if is_new else 1.0 / staying) * value.astype(np.float64) for value in values]
        means = host.reduce_fused(parts, "float64", "sum", "elastic/moving statistics")
        for variable, value, mean in zip(statistics, values, means, strict=True):
            variable.assign(mean.astype(value.dtype))


def _furthest(everyone: Sequence[Sequence[Any]], staying: Sequence[int]) -> list[int]:
    """The ranks that are in the last epoch which one of those that stay has begun."""
    epochs = {rank: everyone[rank][1] for rank in staying}
    if not all(isinstance(each, int) for each in epochs.values()):
        return list(staying)
    last = max(epochs.values())
    return [rank for rank, epoch in epochs.items() if epoch == last]
