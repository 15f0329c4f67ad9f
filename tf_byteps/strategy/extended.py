"""What `tf.distribute` and Keras ask of a strategy: one replica a process, plain variables."""

import tensorflow as tf
from tensorflow.python.distribute import (
    device_util,
    distribute_lib,
    distribute_utils,
    numpy_dataset,
)
from tensorflow.python.framework import ops

from tf_byteps import runtime
from tf_byteps.ops import gather, names, push_pull
from tf_byteps.ops.reduce_op import Average, Sum
from tf_byteps.strategy import local_batch, sharding
from tf_byteps.strategy.initial_values import InitialValues

_OPS = {tf.distribute.ReduceOp.SUM: Sum, tf.distribute.ReduceOp.MEAN: Average}


def _reduce_op(reduce_op):
    if isinstance(reduce_op, str):
        reduce_op = tf.distribute.ReduceOp(reduce_op.upper())
    return _OPS[reduce_op]


def _gather_along(value, axis, name=None):
    """Concatenates the workers' tensors along any axis."""
    value = tf.convert_to_tensor(value)
    if value.shape.rank == 0:
        raise ValueError("a scalar cannot be gathered: it has no axis to concatenate along")
    if axis == 0:
        return gather(value, name)
    order = [axis, *(other for other in range(value.shape.rank) if other != axis)]
    gathered = gather(tf.transpose(value, order), name)
    return tf.transpose(gathered, [order.index(position) for position in range(len(order))])


class BytePSReplicaContext(distribute_lib.ReplicaContext):
    """The replica of this process, among those of all workers."""

    def __init__(self, strategy):
        super().__init__(strategy, replica_id_in_sync_group=runtime.rank())

    def all_reduce(self, reduce_op, value, options=None):
        """Reduces a tensor, or a structure of tensors, over all workers. Differentiable.

        Every tensor is exchanged by itself, as soon as it is computed; the first of the structure
        has the highest priority. A worker whose batch is empty contributes zeros.

        Args:
            reduce_op: `tf.distribute.ReduceOp.SUM` or `MEAN`, or its name.
            value: a `tf.Tensor` or `tf.IndexedSlices`, or a nested structure of them.
            options: unused.

        Returns:
            The same structure of reduced values.
        """
        del options
        op = _reduce_op(reduce_op)
        flat = [
            value if isinstance(value, tf.IndexedSlices) else tf.convert_to_tensor(value)
            for value in tf.nest.flatten(value)
        ]
        reduced = [
            push_pull(
                local_batch.contribution(tensor),
                name=names.unnamed("all_reduce", getattr(tensor, "values", tensor)),
                op=op,
                priority=-index,
            )
            for index, tensor in enumerate(flat)
        ]
        return tf.nest.pack_sequence_as(value, reduced)

    def all_gather(self, value, axis, options=None):
        """Concatenates the workers' tensors along `axis`, in rank order. Differentiable.

        Args:
            value: a `tf.Tensor` of rank 1 or more, or a nested structure of them.
            axis: the axis to concatenate along; the other lengths are the same on all workers.
            options: unused.

        Returns:
            The same structure of concatenated tensors.
        """
        del options
        return tf.nest.map_structure(lambda tensor: _gather_along(tensor, axis), value)


class BytePSExtended(distribute_lib.StrategyExtendedV1):
    """The strategy's workings. One object for each `BytePSStrategy`."""

    def __init__(self, strategy):
        super().__init__(strategy)
        self._device = device_util.resolve(_device_of(runtime.local_rank()))
        self._initial_values = InitialValues()

    # Variables.

    def _create_variable(self, next_creator, **kwargs):
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
            variable = next_creator(**kwargs)
        self._initial_values.created(variable)
        return variable

    def _validate_colocate_with_variable(self, colocate_with_variable):
        strategy = getattr(colocate_with_variable, "_distribute_strategy", None)
        if strategy is not None and not isinstance(strategy.extended, BytePSExtended):
            distribute_utils.validate_colocate(colocate_with_variable, self)

    def synchronize_new_variables(self):
        """Gives worker 0's values to variables that were created since the last call.

        A collective if there are any.
        """
        self._initial_values.synchronize_created()

    def synchronize_model(self, model):
        """Gives worker 0's values to all variables of a Keras model and its optimizer.

        Always a collective.
        """
        self._initial_values.synchronize_model(model)

    def read_var(self, variable):
        return tf.identity(variable)

    def value_container(self, value):
        return value

    # Running and reducing.

    def _call_for_each_replica(self, fn, args, kwargs):
        with tf.device(self._device), BytePSReplicaContext(self._container_strategy()):
            return fn(*args, **kwargs)

    def _reduce_to(self, reduce_op, value, destinations, options):
        del destinations, options
        op = _reduce_op(reduce_op)
        return tf.nest.map_structure(lambda tensor: push_pull(tensor, op=op), value)

    def _gather_to_implementation(self, value, destinations, axis, options):
        del destinations, options
        return tf.nest.map_structure(lambda tensor: _gather_along(tensor, axis), value)

    def _broadcast_to(self, tensor, destinations):
        del destinations
        return tensor

    def _update(self, var, fn, args, kwargs, group):
        return self._update_non_slot(var, fn, (var, *args), kwargs, group)

    def _update_non_slot(self, colocate_with, fn, args, kwargs, group):
        del colocate_with
        with tf.device(self._device), distribute_lib.UpdateContext(self._device):
            result = fn(*args, **kwargs)
        return result if group else tf.nest.map_structure(self._local_results, result)

    def _replica_ctx_update(self, var, fn, args, kwargs, group):
        return self._update(var, fn, args, kwargs, group)

    def _local_results(self, value):
        return (value,)

    # Input.

    def _experimental_distribute_dataset(self, dataset, options):
        _refuse_per_replica(options)
        return sharding.distribute(dataset, self._container_strategy())

    def _distribute_datasets_from_function(self, dataset_fn, options):
        _refuse_per_replica(options)
        context = tf.distribute.InputContext(runtime.size(), runtime.rank(), runtime.size())
        return sharding.distribute_own(dataset_fn(context))

    def _experimental_distribute_values_from_function(self, value_fn):
        return value_fn(distribute_lib.ValueContext(runtime.rank(), runtime.size()))

    # What kind of strategy this is.

    def _in_multi_worker_mode(self):
        # Asked by TensorFlow to find out whether values come wrapped, one for each replica: ours
        # never do.
        return False

    def _use_merge_call(self):
        # With one replica it is a plain call, which gives Keras this strategy even if an optimizer
        # was made outside the scope.
        return True

    def _get_local_replica_id(self, replica_id_in_sync_group):
        del replica_id_in_sync_group
        return 0

    def _get_replica_id_in_sync_group(self, local_replica_id):
        del local_replica_id
        return runtime.rank()

    @property
    def _num_replicas_in_sync(self):
        return runtime.size()

    @property
    def worker_devices(self):
        return (self._device,)

    @property
    def parameter_devices(self):
        return (self._device,)

    def non_slot_devices(self, var_list):
        del var_list
        return (self._device,)

    @property
    def experimental_between_graph(self):
        return True

    @property
    def experimental_should_init(self):
        return True

    @property
    def should_checkpoint(self):
        return runtime.rank() == 0

    @property
    def should_save_summary(self):
        return runtime.rank() == 0

    @property
    def _global_batch_size(self):
        return True

    @property
    def _support_per_replica_values(self):
        return False


def _device_of(local_rank):
    gpus = tf.config.list_logical_devices("GPU")
    return gpus[local_rank % len(gpus)].name if gpus else "/device:CPU:0"


def _refuse_per_replica(options):
    mode = getattr(options, "experimental_replication_mode", None)
    if mode == tf.distribute.InputReplicationMode.PER_REPLICA:
        raise NotImplementedError(
            "InputReplicationMode.PER_REPLICA is not supported: each worker has one replica"
        )
