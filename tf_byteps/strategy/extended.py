"""What `tf.distribute` and Keras ask of a strategy: one replica a process, plain variables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from tf_byteps import runtime
from tf_byteps.ops.device import own_device
from tf_byteps.private.tensorflow import (
    device_util,
    distribute_lib,
    distribute_utils,
    framework_ops as ops,
    input_lib,
    input_lib_v1,
    numpy_dataset,
)
from tf_byteps.strategy import keras2
from tf_byteps.strategy.cluster import cluster_resolver
from tf_byteps.strategy.initial_values import InitialValues
from tf_byteps.strategy.input import sharding, shuffle
from tf_byteps.strategy.input.datasets import BytePSDataset
from tf_byteps.strategy.reductions import gather_along, reduce
from tf_byteps.strategy.step import loops, tapes
from tf_byteps.strategy.variables import distributed, own_value
from tf_byteps.types import TensorLike, Variable


class BytePSReplicaContext(distribute_lib.ReplicaContext):
    """The replica of this process, among those of all workers."""

    def __init__(self, strategy: tf.distribute.Strategy) -> None:
        super().__init__(strategy, replica_id_in_sync_group=runtime.rank())

    def all_reduce(
        self, reduce_op: tf.distribute.ReduceOp, value: object, options: object = None
    ) -> Any:
        """Reduces a tensor, or a structure of tensors, over all workers. Differentiable.

        Every tensor is exchanged by itself, as soon as it is computed. A worker whose batch
        is empty contributes zeros.

        Args:
            reduce_op: `tf.distribute.ReduceOp.SUM` or `MEAN`, or its name.
            value: a `tf.Tensor` or `tf.IndexedSlices`, or a nested structure of them.
            options: unused.

        Returns:
            The same structure of reduced values.
        """
        del options
        reduced = [
            tapes.reduced_by_program(tensor, lambda each: reduce(reduce_op, each, "all_reduce"))
            for tensor in tf.nest.flatten(value)
        ]
        return tf.nest.pack_sequence_as(value, reduced)

    def all_gather(self, value: object, axis: int, options: object = None) -> Any:
        """Concatenates the workers' tensors along `axis`, in rank order. Differentiable.

        Args:
            value: a `tf.Tensor` of rank 1 or more, or a nested structure of them.
            axis: the axis to concatenate along; the other lengths are the same on all workers.
            options: unused.

        Returns:
            The same structure of concatenated tensors.
        """
        del options
        return tf.nest.map_structure(lambda tensor: gather_along(own_value(tensor), axis), value)


class BytePSExtended(distribute_lib.StrategyExtendedV1):
    """The strategy's workings. One object for each `BytePSStrategy`."""

    is_byteps = True

    def __init__(self, strategy: tf.distribute.Strategy) -> None:
        super().__init__(strategy)
        self._device = device_util.resolve(own_device())
        self._initial_values = InitialValues()
        self._cluster_resolver = cluster_resolver()  # `Strategy.cluster_resolver` returns it

    def begin_epoch(self, addresses: Mapping[int, str] | Sequence[str], is_first: bool) -> None:
        """The workers of an elastic job have come together. See `membership.begin_epoch`.

        Args:
            addresses: of all workers, in rank order.
            is_first: whether no worker has trained before.
        """
        self._cluster_resolver = cluster_resolver(addresses)
        if not is_first:
            self._initial_values = InitialValues()

    # Variables.

    def _create_variable(self, next_creator: Callable[..., Any], **kwargs: object) -> Any:
        keras2.refuse_trainer()
        if kwargs.get("synchronization") in (None, tf.VariableSynchronization.AUTO):
            # As variables of other strategies show it.
            kwargs["synchronization"] = tf.VariableSynchronization.ON_WRITE
        colocate_with = kwargs.pop("colocate_with", None)
        if colocate_with is None:
            placement = tf.device(self._device)
        elif isinstance(colocate_with, numpy_dataset.SingleDevice):
            placement = tf.device(colocate_with.device)
        else:
            placement = ops.colocate_with(colocate_with)
        with placement:
            variable = distributed(next_creator(**kwargs))
        self._initial_values.created(variable)
        if loops.is_building():
            self.synchronize_new_variables()
        return variable

    def _validate_colocate_with_variable(self, colocate_with_variable: object) -> None:
        strategy = getattr(colocate_with_variable, "_distribute_strategy", None)
        if strategy is not None and not isinstance(strategy.extended, BytePSExtended):
            distribute_utils.validate_colocate(colocate_with_variable, self)

    def synchronize_new_variables(self) -> None:
        """Gives worker 0's values to variables that were created since the last call.

        A collective if there are any.
        """
        self._initial_values.synchronize_created()

    def synchronize_model(self, model: keras.Model) -> None:
        """Gives worker 0's values to all variables of a Keras model and its optimizer.

        Always a collective.
        """
        self._initial_values.synchronize_model(model)

    def read_var(self, variable: Variable) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        return tf.identity(variable)

    def value_container(self, value: object) -> Any:
        return value

    # Running and reducing.

    def _call_for_each_replica(
        self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        with tf.device(self._device), BytePSReplicaContext(self._container_strategy()):
            return fn(*args, **kwargs)

    def _reduce_to(
        self,
        reduce_op: tf.distribute.ReduceOp,
        value: object,
        destinations: object,
        options: object,
    ) -> Any:
        del destinations, options
        return tf.nest.map_structure(
            lambda tensor: tapes.reduced_by_program(
                tensor, lambda each: reduce(reduce_op, own_value(each), "reduce")
            ),
            value,
        )

    def _gather_to_implementation(
        self, value: object, destinations: object, axis: int, options: object
    ) -> Any:
        del destinations, options
        return tf.nest.map_structure(lambda tensor: gather_along(own_value(tensor), axis), value)

    def _broadcast_to(self, tensor: tf.Tensor, destinations: object) -> Any:
        del destinations
        return tensor

    def _update(
        self,
        var: Variable,
        fn: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        group: bool,
    ) -> Any:
        return self._update_non_slot(var, fn, (var, *args), kwargs, group)

    def _update_non_slot(
        self,
        colocate_with: object,
        fn: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        group: bool,
    ) -> Any:
        del colocate_with
        with (
            tf.device(self._device),
            distribute_lib.UpdateContext(self._device),
            tf.control_dependencies(self._awaited_by_update(args)),
        ):
            result = fn(*args, **kwargs)
        return result if group else tf.nest.map_structure(self._local_results, result)

    def _awaited_by_update(self, args: tuple[Any, ...]) -> list[Any]:
        # What an update does before it needs the gradient (a momentum times its factor) is ready
        # when a step begins. A GPU would get it before the forward pass, for all variables: the
        # step begins with launching hundreds of small kernels.
        if "GPU" not in self._device:
            return []
        tensors = tf.nest.flatten(args, expand_composites=True)
        return [tensor for tensor in tensors if tf.is_symbolic_tensor(tensor)]

    def _replica_ctx_update(  # pyright: ignore[reportIncompatibleMethodOverride]
        self,
        var: Variable,
        fn: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        group: bool,
    ) -> Any:
        return self._update(var, fn, args, kwargs, group)

    def _local_results(self, value: object) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        # A tape asks for its trainable variables here, and means the variables themselves.
        if getattr(value, "trainable", False):
            return (value,)
        return (own_value(value),)

    # Input.

    def _experimental_distribute_dataset(self, dataset: tf.data.Dataset, options: object) -> Any:
        _refuse_per_replica(options)
        keras2.refuse_trainer()
        share = sharding.distribute(dataset, self._container_strategy())
        return _where_asked_for(share, options)

    def _distribute_datasets_from_function(
        self, dataset_fn: Callable[..., Any], options: object
    ) -> Any:
        _refuse_per_replica(options)
        with shuffle.of_this_worker():
            dataset = dataset_fn(_input_context())
        share = sharding.distribute_own(dataset)
        return _where_asked_for(share, options)

    def _make_input_fn_iterator(
        self, input_fn: Callable[..., Any], replication_mode: object = None
    ) -> Any:
        del replication_mode
        workers = input_lib.InputWorkers([("/device:CPU:0", self.worker_devices)])
        return input_lib_v1.InputFunctionIterator(
            input_fn, workers, [_input_context()], self._container_strategy()
        )

    def _experimental_distribute_values_from_function(self, value_fn: Callable[..., Any]) -> Any:
        return value_fn(distribute_lib.ValueContext(runtime.rank(), runtime.size()))

    # What kind of strategy this is.

    def _in_multi_worker_mode(self) -> bool:
        # Asked by TensorFlow to find out whether values come wrapped, one for each replica: ours
        # never do.
        return False

    def _use_merge_call(self) -> bool:  # pyright: ignore[reportIncompatibleMethodOverride]
        # With one replica it is a plain call, which gives Keras this strategy even if an optimizer
        # was made outside the scope.
        return True

    def _get_local_replica_id(self, replica_id_in_sync_group: TensorLike) -> Any:
        del replica_id_in_sync_group
        return 0

    def _get_replica_id_in_sync_group(self, local_replica_id: TensorLike) -> Any:
        del local_replica_id
        return runtime.rank()

    @property
    def _num_replicas_in_sync(self) -> Any:
        return runtime.size()

    @property
    def worker_devices(self) -> Any:
        return (self._device,)

    @property
    def parameter_devices(self) -> Any:
        return (self._device,)

    def non_slot_devices(self, var_list: object) -> Any:
        del var_list
        return (self._device,)

    @property
    def experimental_between_graph(self) -> bool:
        return True

    @property
    def experimental_should_init(self) -> bool:
        return True

    @property
    def should_checkpoint(self) -> bool:
        return runtime.rank() == 0

    @property
    def should_save_summary(self) -> bool:
        return runtime.rank() == 0

    @property
    def _global_batch_size(self) -> bool:
        return True

    @property
    def _support_per_replica_values(self) -> bool:
        return False


def _input_context() -> Any:
    return tf.distribute.InputContext(
        num_input_pipelines=runtime.size(),
        input_pipeline_id=runtime.rank(),
        num_replicas_in_sync=runtime.size(),
    )


def _refuse_per_replica(options: object) -> None:
    mode = getattr(options, "experimental_replication_mode", None)
    if mode == tf.distribute.InputReplicationMode.PER_REPLICA:
        raise NotImplementedError(
            "InputReplicationMode.PER_REPLICA is not supported: each worker has one replica"
        )


def _where_asked_for(share: BytePSDataset, options: object) -> Any:
    fetches = getattr(options, "experimental_fetch_to_device", None) is not False
    return share if fetches else share.on_host()
