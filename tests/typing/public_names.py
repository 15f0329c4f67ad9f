"""Uses every public name as programs do. Type checkers must find nothing wrong with it.

`make lint` checks it, and test_types.py that no name is missing. Nobody runs it.
"""

import pathlib

import jax
import keras
import numpy as np
import tensorflow as tf

import tf_byteps
import tf_byteps as bps
from tf_byteps import elastic, errors, launch, ops, runtime, strategy, timeline, training
from tf_byteps.config import Config
from tf_byteps.keras import callbacks


def life() -> None:
    bps.init(bps.Config(part_bytes=1 << 20, role="worker"))
    bps.init(Config.from_environment({"BYTEPS_PARTITION_BYTES": "65536"}), log_level="DEBUG")
    ranks: list[int] = [bps.rank(), bps.local_rank(), bps.cross_rank()]
    sizes: list[int] = [bps.size(), bps.local_size(), bps.cross_size()]
    assert bps.is_initialized() and bps.is_homogeneous() and ranks < sizes
    assert runtime.rank() < runtime.config().size and bps.__version__
    assert bps.runtime is runtime and bps.config.OPTIONS["part_bytes"].shared
    bps.suspend()
    bps.resume(num_workers=3, num_servers=0, global_rank=1)
    bps.shutdown()


def build() -> list[bool]:
    built = [bps.ccl_built(), bps.cuda_built(), bps.ddl_built(), bps.gloo_built(), bps.mpi_built()]
    built += [bps.nccl_built(), bps.rocm_built(), bps.gloo_enabled(), bps.mpi_enabled()]
    built += [bps.mpi_threads_supported(), bps.gpu_available(), bps.num_rank_is_power_2(4)]
    return [*built, bps.check_num_rank_power_of_2(bps.size())]


def process_sets(tensor: tf.Tensor, array: jax.Array) -> list[int | None]:
    even = bps.ProcessSet([0, 2])
    bps.init(process_sets=[even, [1, 3]])
    odd: bps.ProcessSet = bps.add_process_set([1])
    total: tf.Tensor = bps.push_pull(tensor, process_set=even)
    bps.allreduce(total, process_set=bps.global_process_set)
    bps.allgather(bps.broadcast(total, 0, process_set=even), process_set=even)
    bps.alltoall(bps.reducescatter(total, process_set=even), process_set=even)
    bps.DistributedGradientTape(tf.GradientTape(), process_set=even)
    bps.DistributedOptimizer(keras.optimizers.SGD(), process_set=even)
    bps.broadcast_variables([], 0, process_set=even)
    bps.allgather_object(bps.broadcast_object(1, process_set=even), process_set=even)
    bps.jax.gather(bps.jax.push_pull(array, process_set=even), process_set=even)
    print(bps.size_op(1), bps.process_set_included_op(1), even.included(), even.ranks)
    bps.remove_process_set(odd)
    last: int = bps.join()
    print(last)
    return [even.process_set_id, even.size(), even.rank()]


def exchanges_of_jax(array: jax.Array) -> list[jax.Array]:
    total: jax.Array = bps.jax.push_pull(array, op=bps.Sum, name="total", compression="bf16")
    both: list[jax.Array] = bps.jax.push_pull([array, array], average=True, priority=2)
    rows = bps.jax.gather(array, name="rows") + bps.jax.broadcast(array, 0, gradient="sum")
    tree: dict[str, jax.Array] = bps.jax.push_pull_tree({"a": array}, op="sum")
    tree = bps.jax.broadcast_tree(tree, root_rank=1, name="tree")
    change: bps.jax.GradientTransformation = bps.jax.sum_gradients(average=True, name="g")
    updates, state = change.update(tree, change.init(tree))
    with bps.jax.exchange_errors():
        assert state is not None
    return [total, *both, rows, updates["a"]]


def exchanges(tensor: tf.Tensor, rows: tf.IndexedSlices) -> float:
    total = bps.push_pull(tensor, op=bps.Sum, name="total").numpy()
    bps.push_pull(np.ones(3), "scope", average=True, compression="fp16", priority=3)
    merged: tf.IndexedSlices = bps.push_pull(rows, op=bps.ReduceOp.AVERAGE)
    both = bps.push_pull([tensor, rows], op="average", compression=bps.Compression.bf16)
    least, most = bps.allreduce(tensor, op=bps.Min), bps.allreduce(tensor, op=bps.Max)
    bps.allreduce(tensor, op=bps.Product)
    mean: tf.Tensor = bps.allreduce(tensor, op=bps.Average, prescale_factor=0.5)
    every = bps.allgather(tensor, name="rows") + bps.gather(tensor)
    root = bps.broadcast(tensor, root_rank=0, gradient="sum")
    bps.grouped_allreduce([tensor, tensor], op=bps.Sum)
    bps.grouped_allgather([tensor, tensor], name="pair")
    received, counts = bps.alltoall(tensor, [1] * bps.size(), name="split")
    even: tf.Tensor = bps.alltoall(tensor)
    own = bps.reducescatter(received + even, op=bps.Sum)
    print(counts, bps.grouped_reducescatter([own, own]))
    where = bps.rank_op() + bps.size_op() + bps.local_rank_op() + bps.local_size_op()
    assert len(both) == 2 and merged.indices is not None
    return float(total.sum()) + float(tf.reduce_sum(least + most + mean + every + root + where))


class Half(ops.Compressor):
    @staticmethod
    def compress(tensor):
        return tf.cast(tensor, tf.float16), tensor.dtype

    @staticmethod
    def decompress(tensor, context):
        return tf.cast(tensor, context)


def operations_module(tensor: tf.Tensor) -> None:
    ops.push_pull(tensor, op=ops.Sum, compression=Half)
    ops.push_pull(tensor, op=ops.ReduceOp.MAX, compression=ops.Compression.none)
    ops.allgather(ops.gather(ops.alltoall(ops.broadcast(tensor, 0))))
    assert ops.Average != ops.Min != ops.Max != ops.Product


def objects(model: keras.Model) -> None:
    bps.broadcast_variables(model.variables, root_rank=0)
    bps.broadcast_(model.trainable_variables, 0)[0]
    settings = bps.broadcast_object({"epoch": 3, "seeds": np.arange(4)}, root_rank=0)
    lengths = bps.allgather_object(settings["epoch"])
    print(max(lengths), *bps.get_pushpull_speed())


def broadcast_all_variables() -> None:
    bps.broadcast_global_variables(0)


def watch(folder: pathlib.Path) -> None:
    bps.start_timeline(folder / "trace.json")
    path: str = bps.stop_timeline()
    for part in timeline.read(path)[: timeline.MAX_PARTS]:
        print(part.tensor, (part.done - part.enqueued) / 1e6, *part.stages())
    slowest: timeline.Part = max(bps.timeline.read(folder), key=lambda part: part.done)
    counters = bps.server_counters()
    lags = bps.arrival_lags()
    lost: errors.LostProcess | None = bps.lost_process()
    print(lost and (lost.role, lost.rank, lost.address, lost.reason))
    print(slowest.server, counters and counters["pushes"], lags[0]["mean_ms"])


def codecs(tensor: tf.Tensor) -> None:
    for compression in (
        bps.Compression.int8(block=256, stochastic=True),
        bps.Compression.fp8(block=64),
        bps.Compression.int4(block=64, feedback=True),
        bps.Compression.onebit(feedback=False),
        bps.Compression.topk(ratio=0.001, feedback=False),
        bps.Compression.randomk(ratio=0.5, feedback=False),
        bps.Compression.dithering(start_step=100),
        bps.Compression.auto,
        bps.Compression.from_byteps({"compressor": "topk", "k": 0.01, "ef": "vanilla"}),
        bps.Compression.dithering(bits=3, block=64, partition="natural", norm="l2"),
        bps.Compression.thc,
        bps.Compression.powersgd(rank=4),
    ):
        bps.push_pull(tensor, compression=compression)


def fit(images: np.ndarray, labels: np.ndarray) -> None:
    with bps.BytePSStrategy(compression=bps.Compression.onebit, merge_repeated_rows=False).scope():
        model = keras.Sequential([keras.layers.Dense(10)])
        model.compile("adam", "mse")
    model.fit(images, labels, batch_size=48, callbacks=[bps.keras.callbacks.LeaveOnSignal()])


def loop(data: tf.data.Dataset) -> tf.Tensor:
    distribution = strategy.BytePSStrategy(Config(), sparse_as_dense=True)

    @tf.function
    def step(batch):
        per_worker = distribution.run(tf.reduce_sum, args=(batch,))
        return distribution.reduce(tf.distribute.ReduceOp.SUM, per_worker, axis=None)

    print(distribution.num_replicas_in_sync, distribution.backup_workers)
    batches = distribution.experimental_distribute_dataset(data)
    return tf.add_n([step(batch) for batch in batches])


def local_steps(model: keras.Model, data: tf.data.Dataset) -> float | None:
    outer = bps.OuterSync(model.trainable_variables, local_steps=8, outer="diloco", delay=2)
    for images, labels in data:
        model.train_on_batch(images, labels)
        outer.step(rows=len(images))
    outer.finish()
    bps.OuterSync(model.trainable_variables, 8, quorum=1, grace=0.5).others_wait.bit_length()
    print(outer.rounds, bps.local_steps)
    return outer.divergence


def tape(model: keras.Model, images: tf.Tensor, labels: tf.Tensor) -> None:
    optimizer = bps.DistributedOptimizer(keras.optimizers.Adam(1e-3), compression="int4:feedback=1")
    optimizer.learning_rate = 1e-4  # still an Adam
    bps.DistributedOptimizer(
        keras.optimizers.SGD(0.1),
        compression=lambda variable: "int8" if len(variable.shape) > 1 else None,
    )
    with bps.DistributedGradientTape(tf.GradientTape(), op=bps.Average) as recording:
        recording.register_local_source(model.trainable_variables[0])
        loss = tf.reduce_mean(tf.square(model(images) - labels))
    gradients = recording.gradient(loss, model.trainable_variables)
    optimizer.apply(gradients, model.trainable_variables)
    own = model.layers[0]
    bps.PartialDistributedOptimizer(keras.optimizers.Adam(1e-3), local_layers=own).learning_rate = 1
    partial = bps.PartialDistributedGradientTape(recording, local_layers=[own])
    local, shared = partial.get_local_and_global_gradients(loss, model.trainable_variables)
    optimizer.apply([gradient for _, gradient in [*local, *shared]])
    recording.jacobian(loss, images)
    recording.batch_jacobian(loss, images)


def keras_names(model: keras.Model, images: np.ndarray) -> None:
    hvd = tf_byteps.keras
    hvd.init()
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.1), op=hvd.Average)
    model.compile(optimizer, "mse")
    model.fit(
        images,
        callbacks=[
            callbacks.BroadcastGlobalVariablesCallback(0),
            callbacks.MetricAverageCallback(),
            callbacks.LearningRateWarmupCallback(warmup_epochs=5, verbose=1),
            hvd.callbacks.LearningRateScheduleCallback(lambda epoch: 0.1 ** (epoch // 30)),
            callbacks.OuterSyncCallback(32, "diloco", fragments=4),
            callbacks.Telemetry("logs", every_steps=50),
            callbacks.BackupResiduals("residuals"),
            callbacks.LeaveOnSignal(exit_process=False),
            callbacks.TrainingCheckpoint("checkpoints", save_freq="epoch", max_to_keep=2),
        ],
    )
    mean = hvd.allreduce(np.float32(1.0), name="loss", op=hvd.Sum).mean()
    most = hvd.push_pull(2.0, op=hvd.Max, compression=hvd.Compression.none) - hvd.Min.count("m")
    most *= hvd.push_pull(2.0, op=hvd.Product)
    scores = hvd.allgather(hvd.reducescatter(np.array([mean])), name="scores")
    epoch = int(hvd.broadcast(most, root_rank=0, name="epoch"))
    loaded = hvd.load_model("model.keras", custom_objects={}, op="average")
    loaded.fit(scores, epochs=epoch)
    hvd.broadcast_variables(model.variables, root_rank=0)
    hvd.broadcast_object(hvd.allgather_object(hvd.is_initialized() and hvd.is_homogeneous()))
    print(hvd.rank(), hvd.size(), hvd.local_rank(), hvd.local_size())
    print(hvd.cross_rank(), hvd.cross_size(), hvd.elastic.run)
    print(hvd.ccl_built(), hvd.cuda_built(), hvd.ddl_built(), hvd.gloo_built(), hvd.mpi_built())
    print(hvd.nccl_built(), hvd.rocm_built(), hvd.gloo_enabled(), hvd.mpi_enabled())
    print(hvd.mpi_threads_supported(), hvd.num_rank_is_power_2(4))
    print(hvd.check_num_rank_power_of_2(4), hvd.gpu_available())
    hvd.start_timeline("trace.json")
    print(hvd.stop_timeline())
    hvd.shutdown()


def keras_tables(ids: tf.Tensor) -> None:
    layers = tf_byteps.keras.layers
    words = layers.TableConfig("words", 1000, 8, initializer="uniform", combiner="sum")
    layer = layers.DistributedEmbedding({"title": layers.FeatureConfig("title", table=words)})
    layer({"title": ids}, weights={"title": tf.ones_like(ids)})
    layer.set_embedding_tables(layer.get_embedding_tables())
    vocabulary = layers.DynamicVocabulary(min_count=2, expire_after_steps=9, when_full="error")
    layers.TableConfig("items", 1000, 8, optimizer="sgd", vocabulary=vocabulary)
    rows: tf_byteps.keras.layers.KeyedRows = layer.get_embedding_tables()["items"]
    print(rows.keys, rows.rows, rows.default)


def keras_broadcast_all_variables() -> None:
    tf_byteps.keras.broadcast_global_variables(0)


def come_and_go(model: keras.Model) -> None:
    state = bps.elastic.KerasState(model, epoch=0, batch=0)
    others = [
        elastic.ObjectState(epoch=0, best=None),
        elastic.TensorFlowState(model.variables, step=0),
        elastic.JaxState(weights=model.variables, step=0),
        elastic.TensorFlowKerasState(model, model.optimizer),
    ]

    @elastic.run
    def train(state: elastic.State, steps: int) -> int:
        while state.epoch < 10:
            state.epoch += 1
            try:
                state.commit()
            except elastic.HostsUpdatedInterrupt:
                raise
        return steps

    local = elastic.OuterSyncState(
        model, lambda: bps.OuterSync(model.trainable_variables, 32, quorum=2), model.optimizer, n=0
    )
    if local.outer is not None and local.rows_done < 1000:
        local.outer.step(rows=2)

    def scale() -> None:
        state.optimizer.learning_rate = 0.01 * bps.size()

    state.register_reset_callbacks([scale])
    steps: int = train(state, 3)
    model.fit(
        np.ones([steps, len(others)]),
        callbacks=[
            elastic.CommitStateCallback(state, batches_per_commit=100),
            elastic.UpdateBatchStateCallback(state),
            elastic.UpdateEpochStateCallback(state),
        ],
    )


def start_from_python() -> list[int]:
    def work(epochs: int) -> int:
        return epochs

    try:
        return launch.run(work, args=[3], np=2, servers=1, env={"A": "b"}, options=["--tls"])
    except errors.ConfigError as error:
        raise bps.BytePSError("no job") from error
    except errors.ExchangeError as error:
        raise SystemExit(error.code) from error
    except (errors.StartInterruptedError, errors.RendezvousError, errors.Dismissed):
        return bps.launch.run(work, kwargs={"epochs": 3})


def names_of_other_libraries() -> None:
    """Each says what to use instead."""
    print(bps.Adasum, bps.training is training, bps.errors is errors, bps.ops is ops)
    print(bps.BroadcastGlobalVariablesHook, bps.SyncBatchNormalization)
    print(bps.broadcast_object_fn)
    print(bps.strategy is strategy, bps.launch is launch)
