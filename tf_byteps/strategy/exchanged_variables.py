"""Variables whose `synchronization` and `aggregation` say how the workers' values belong together.

A variable that says nothing is a plain one: each worker writes its own, and all write the same. The
others are plain variables, too, of a class that exchanges when it is written (`ON_WRITE`, which is
what `AUTO` means) or when it is read (`ON_READ`):

| | in a replica (`strategy.run`) | elsewhere |
|---|---|---|
| `ON_WRITE` | a write takes the workers' values together | a write sets each worker's |
| `ON_READ` | reads and writes are the worker's own | a read takes the workers' values together |

"Together" is the sum, the mean, or replica 0's value. What Keras creates for itself never
exchanges: counters go on alike everywhere, and metrics are reduced at fixed points (protocol rule
26).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

import tensorflow as tf

from tf_byteps.private.tensorflow import (
    VARIABLE_VALUE_KEY,  # pyright: ignore[reportAttributeAccessIssue]
    BaseResourceVariable,
    distribute_lib,
    save_context,
    values_util,
)
from tf_byteps.strategy.reductions import from_first_replica, reduce
from tf_byteps.types import ExchangeInput, TensorLike

_NONE = tf.VariableAggregation.NONE
_SUM = tf.VariableAggregation.SUM
_MEAN = tf.VariableAggregation.MEAN
_ONLY_FIRST_REPLICA = tf.VariableAggregation.ONLY_FIRST_REPLICA
_ON_READ = tf.VariableSynchronization.ON_READ
_REDUCE_OPS = {_SUM: tf.distribute.ReduceOp.SUM, _MEAN: tf.distribute.ReduceOp.MEAN}
_KINDS = [(on_read, each) for on_read in (False, True) for each in tf.VariableAggregation]
_CHANGES = ("assign_add", "assign_sub")
# Rows for one index cannot be added up before such a write.
_REPLACING_SCATTERS = ("scatter_max", "scatter_min", "scatter_update")
_SCATTERS = ("scatter_add", "scatter_div", "scatter_mul", "scatter_sub", *_REPLACING_SCATTERS)
_INDEXED_WRITES = (
    "batch_scatter_update",
    "scatter_nd_add",
    "scatter_nd_max",
    "scatter_nd_min",
    "scatter_nd_sub",
    "scatter_nd_update",
)


def _in_replica() -> Any:
    """Whether this is code of a replica, and not an update that all make alike."""
    return (
        tf.distribute.has_strategy()
        and not tf.distribute.in_cross_replica_context()
        and distribute_lib.get_update_replica_id() is None
    )


def _together(variable: ExchangedVariable, value: ExchangeInput, kind: str) -> Any:
    """The workers' values of one variable as its aggregation says."""
    values_util.mark_as_unsaveable()  # it needs the other workers
    if variable.aggregation == _NONE:
        raise ValueError(
            f"the variable {variable.name!r} has synchronization ON_READ and no aggregation, so "
            "that it can be read in strategy.run only: create it with an aggregation"
        )
    if variable.aggregation == _ONLY_FIRST_REPLICA:
        return from_first_replica(value, kind)
    return reduce(_REDUCE_OPS[cast(Any, variable.aggregation)], value, kind)


if TYPE_CHECKING:
    _OfTensorFlow = BaseResourceVariable  # or a class below it: see _subclass
else:
    _OfTensorFlow = object


class ExchangedVariable(_OfTensorFlow):
    """What the two kinds have in common."""

    def byteps_own_value(self) -> Any:
        """This worker's value, read without an exchange."""
        return tf.identity(BaseResourceVariable._read_variable_op(self))

    def byteps_set_own_value(self, value: ExchangeInput) -> None:
        """Sets this worker's value without an exchange."""
        BaseResourceVariable.assign(self, value)

    def __tf_tracing_type__(self, signature_context: Any) -> Any:
        """A traced function that is given one of these is not reused for one of another kind."""
        spec = super().__tf_tracing_type__(signature_context)
        kind = _KINDS.index((self.synchronization == _ON_READ, cast(Any, self.aggregation)))
        alias_id = -1 - (spec.alias_id * len(_KINDS) + kind)  # plain ones have 0, 1, ...
        signature_context.add_placeholder(alias_id, self)
        return type(spec)(spec.shape, spec.dtype, spec.trainable, alias_id)


class OnWriteVariable(ExchangedVariable):
    """A variable that has the same value everywhere because its writes are exchanged."""

    def assign(self, value: ExchangeInput, *args: object, **kwargs: object) -> Any:
        return cast(Any, super()).assign(self._written(value), *args, **kwargs)

    def assign_add(self, delta: TensorLike, *args: object, **kwargs: object) -> Any:
        return cast(Any, super()).assign_add(self._written(delta), *args, **kwargs)

    def assign_sub(self, delta: TensorLike, *args: object, **kwargs: object) -> Any:
        return cast(Any, super()).assign_sub(self._written(delta), *args, **kwargs)

    def _strided_slice_assign(
        self,
        begin: TensorLike,
        end: TensorLike,
        strides: TensorLike,
        value: ExchangeInput,
        *args: object,
        **kwargs: object,
    ) -> Any:
        value = self._written(value)
        return super()._strided_slice_assign(begin, end, strides, value, *args, **kwargs)

    def _check_first(self, method: str) -> None:
        if self.aggregation != _ONLY_FIRST_REPLICA:
            self._check_outside(method, " other than ONLY_FIRST_REPLICA")

    def _check_outside(self, method: str, condition: str = "") -> None:
        if _in_replica():
            raise NotImplementedError(
                f"{method} in strategy.run does not work for variables with an aggregation"
                f"{condition}, such as {self.name!r}: use assign, scatter_add or scatter_sub"
            )

    def _written(self, value: ExchangeInput) -> Any:
        if not _in_replica() or save_context.in_save_context():
            return value
        if not isinstance(value, tf.IndexedSlices):
            value = tf.convert_to_tensor(value, cast(Any, self.dtype))
        return _together(self, value, "variable written")


class OnReadVariable(ExchangedVariable):
    """A variable of which each worker has its own value; read elsewhere they are exchanged."""

    def _read_variable_op(self, no_copy: bool = False) -> Any:
        if self._is_own():
            return super()._read_variable_op(no_copy)
        # Initial values are worker 0's.
        self._distribute_strategy.extended.synchronize_new_variables()
        return _together(self, super()._read_variable_op(no_copy), "variable read")

    def sparse_read(self, indices: TensorLike, name: str | None = None) -> Any:
        if self._is_own():
            return super().sparse_read(indices, name)
        return tf.gather(self.value(), indices, name=name)

    def gather_nd(self, indices: TensorLike, name: str | None = None) -> Any:
        if self._is_own():
            return super().gather_nd(indices, name)
        return tf.gather_nd(self.value(), indices, name=name)

    def assign(self, value: ExchangeInput, *args: object, **kwargs: object) -> Any:
        if not self._is_own():
            value = self._share(value)
        return cast(Any, super()).assign(value, *args, **kwargs)

    def _check_change(self, method: str) -> None:
        if self.aggregation == _SUM and not self._is_own():
            raise ValueError(
                f"{method} outside of strategy.run would count once for each worker, because the "
                f"variable {self.name!r} has synchronization ON_READ and aggregation SUM: use "
                "assign, or do it in strategy.run"
            )

    def _share(self, value: ExchangeInput) -> Any:
        """What each worker keeps of a value, so that reading gives the value again."""
        if self.aggregation != _SUM:
            return value
        value = tf.convert_to_tensor(value, cast(Any, self.dtype))
        return tf.cast(
            value / self._distribute_strategy.num_replicas_in_sync, cast(Any, self.dtype)
        )

    def _restore_from_tensors(self, restored_tensors: dict[str, tf.Tensor]) -> Any:
        share = self._share(restored_tensors[VARIABLE_VALUE_KEY])
        return super()._restore_from_tensors({VARIABLE_VALUE_KEY: share})

    @staticmethod
    def _is_own() -> Any:
        if save_context.in_save_context() or distribute_lib.get_update_replica_id() is not None:
            return True
        return _in_replica() and not distribute_lib.in_variable_sync_on_read_context()

    def __repr__(self) -> str:
        own = BaseResourceVariable._read_variable_op(self) if tf.executing_eagerly() else None
        value = "" if own is None else f", this worker's value={own.numpy()!r}"
        return f"<tf.Variable {self.name!r} shape={self.shape} dtype={self.dtype.name}{value}>"


def _checked(kind: type[ExchangedVariable], method: str, check: Callable[..., Any]) -> None:
    """Makes a method of a class ask `check` whether it can work here."""

    def write(self, *args: object, **kwargs: object) -> Any:
        check(self, method)
        return getattr(super(kind, self), method)(*args, **kwargs)

    setattr(kind, method, write)


def _scattered(method: str) -> None:
    """Makes a method of `OnWriteVariable` that writes rows exchange them first."""

    def scatter(
        self: OnWriteVariable, sparse_delta: tf.IndexedSlices, *args: object, **kwargs: object
    ) -> Any:
        if method in _REPLACING_SCATTERS:
            self._check_first(method)
        plain = getattr(super(OnWriteVariable, self), method)
        return plain(self._written(sparse_delta), *args, **kwargs)

    setattr(OnWriteVariable, method, scatter)


for _method in _SCATTERS:
    _scattered(_method)
for _method in _INDEXED_WRITES:
    _checked(OnWriteVariable, _method, OnWriteVariable._check_outside)
for _method in (*_CHANGES, *_SCATTERS, *_INDEXED_WRITES, "_strided_slice_assign"):
    _checked(OnReadVariable, _method, OnReadVariable._check_change)
