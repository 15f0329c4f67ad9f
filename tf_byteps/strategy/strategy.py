"""The strategy that users see."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from tf_byteps import runtime
from tf_byteps.config import Config
from tf_byteps.errors import BytePSError
from tf_byteps.exchange import backup
from tf_byteps.exchange.compression import Compression, check_with_cross_step
from tf_byteps.exchange.compression_choice import CompressionChoice, resolve_choice
from tf_byteps.local_steps.changes import Staleness
from tf_byteps.local_steps.settings import LocalSteps
from tf_byteps.ops.store import check_job as check_store
from tf_byteps.strategy import keras_hooks
from tf_byteps.strategy.extended import BytePSExtended
from tf_byteps.strategy.fit import framework
from tf_byteps.strategy.input import shuffle
from tf_byteps.strategy.step import local_batch
from tf_byteps.strategy.step.framework import TensorFlow
from tf_byteps.strategy.step.piece_steps import distributed_step
from tf_byteps.strategy.step.scaling import is_asked_by_user
from tf_byteps.strategy.step.stateful import checking_rows


class BytePSStrategy(tf.distribute.Strategy):
    """Synchronous data-parallel training over worker processes, one replica in each.

    Every worker runs the same program. Gradients are summed by summation servers (BytePS, OSDI'20,
    section 3); the optimizer runs on each worker, on the same sum, so that the weights stay equal
    everywhere.

    * **Batches are global.** A dataset's batch of `B` rows is cut into consecutive pieces of
      `ceil(B / workers)` rows, as `MultiWorkerMirroredStrategy` cuts it; the last pieces may be
      shorter or empty. In `Model.fit` each worker's gradients are weighted by its rows, so that any
      piece sizes give the gradient of the whole batch for every loss that is a mean over rows,
      however it is written. A worker with an empty piece contributes zeros and keeps its metrics
      and moving statistics. docs/strategy_contract.md lists what differs from one process.
    * **Initial values come from worker 0.** Workers first compare the lists of their variables and
      all raise an error that names the difference if there is one; then worker 0's values are set
      everywhere, before the first step. Creating a variable does not communicate: workers may
      create theirs in any order and at any time. `Model.fit` does this again after
      `on_train_begin`, for callbacks that restore a checkpoint.
    * **Variables** with an aggregation take the workers' values together when a replica writes
      them, or with `ON_READ` when they are read outside of replicas. Those of Keras never do.
    * **Data are the same everywhere**, which is checked once: rows, their order, and seeds of
      shuffles. Call `keras.utils.set_random_seed` before data are made, or use
      `AutoShardPolicy.OFF` for data that are each worker's own.
    * **Shuffles agree.** An unseeded shuffle (`Model.fit` on arrays, `tf.data.Dataset.shuffle`)
      follows a seed that all workers share, with a new order in each epoch. `tf.random.set_seed` is
      respected and never changed.
    * **Metrics are global.** Logs of epochs, of validation and of `evaluate` cover the rows of all
      workers. Moving statistics are averaged at the end of each epoch; a variable that only looks
      like one says what it is with `byteps_kind` (see docs/strategy_contract.md).
    * **Weights stay equal**, and are compared at the end of each epoch. Random numbers of a step
      are each worker's own.
    * **Files of callbacks are written by worker 0.** `ModelCheckpoint`, `BackupAndRestore`,
      `CSVLogger` and `TensorBoard` write nothing on other workers, which need not see the files:
      what `BackupAndRestore` restores is broadcast. What a program saves itself (models,
      checkpoints) may have one path on all workers: each host writes one copy.
    * **All workers stop together** if one sets `model.stop_training`: at the end of the epoch, or
      after the batch if a callback does it there.
    * **Models belong to the strategy** if they are made, compiled or trained in its scope;
      optimizers follow their model.

    Args:
        config: a `tf_byteps.Config`, as for `tf_byteps.init()`, which is called with it. Default:
            from the environment (`TF_CONFIG`, `DMLC_*` and `BYTEPS_*` variables, `bpslaunch`); with
            nothing there it is one worker without any network.
        cross_step: whether steps of `Model.fit` leave their updates to the next step, whose forward
            pass then begins while the last gradients are still in flight: each layer waits for its
            own update only. Losses and weights are the same as without it. See docs/api.md.
        backup_workers: a number b: the average of a gradient does not wait for the last b workers,
            whose contributions to it are dropped. All workers still apply the same averages. Each
            worker's mean loss then counts alike, whatever its number of rows. Default: the
            configuration's, 0 if nothing is set. See docs/stragglers.md.
        sparse_as_dense: whether gradients that are `tf.IndexedSlices` (of embeddings) become dense
            tensors before the exchange. Faster if most rows of a table are touched, or if the
            workers are GPUs of one host.
        merge_repeated_rows: whether rows of an embedding's gradient that belong to one index are
            added up before the optimizer sees them, as in the dense gradient. Keras leaves them
            apart, and optimizers that square gradients (Adam, RMSprop, Adagrad) square each by
            itself. `False` gives Keras's numbers, more bytes travel, and XLA does not compile the
            steps.
        compression: how gradients are made smaller on the wire: a member of `Compression` or its
            name, such as `"int8"`, or a function that returns one (or `None`) for a
            `keras.Variable`; the same on all workers. See docs/compression.md. With `local_steps`
            it is the weights' changes that are made smaller.
        local_steps: how many steps of `Model.fit` each worker makes by itself, on its own rows,
            before the workers average how far their weights have moved. It is for links that are
            too slow to exchange gradients in every step; losses are not those of one process. See
            docs/local_steps.md. Default: gradients are exchanged in every step.
        outer: what becomes of the average change: `"average"`, all workers go on with the average
            of their weights (local SGD); or `"diloco"`, SGD with Nesterov momentum takes it for a
            gradient.
        outer_learning_rate: what the average change is multiplied by. Default: 1 with `"average"`,
            0.7 with `"diloco"`.
        outer_momentum: from 0 to below 1. Default: 0 with `"average"`; with `"diloco"` 0.6 in the
            first 50 rounds, then rising to 0.9 in 50 more.
        fragments: into how many parts the weights are split, whose rounds are spread over the local
            steps: the peak of traffic is divided by it.
        delay: how many steps later than a round begins its result is taken; the exchange is in
            flight meanwhile. Less than `local_steps`.
        mix: the share of a worker's own weights in what it goes on with after a round. Default: 0,
            with a delay 0.5.
        warmup_steps: how many steps exchange gradients, at the beginning of the training.
        quorum: how many workers must have come before an outer round ends. Each worker makes its
            own number of local steps then: it comes when others have, after the step that it is
            making. Who comes later gets the result, and its change is added to its next round.
            Default: all, after the same number of steps.
        grace: how many seconds a round waits for more workers once a quorum has come. Default:
            twice as long as they lately came after it, but no more than a twentieth of the time
            between two rounds.
        flash_attention: whether the attention of Keras's layers is computed by cuDNN's kernel,
            which never writes the scores to memory, as Keras does on JAX. It is for steps that XLA
            compiles for a GPU, in bfloat16 or float16; what the kernel cannot compute, such as
            attention with dropout, is left to Keras. Numbers differ by rounding. See
            docs/tuning.md.
        staleness: 0 for synchronous training. Otherwise no gradients are exchanged: each worker
            sends what each of its steps has changed to the servers, which hold the weights, and
            goes on with their answer. It waits for others only if it is more than so many steps
            ahead of the slowest; with `"unbounded"` never. See docs/asynchronous.md.

    Raises:
        tf_byteps.errors.BytePSError: the other processes of the job cannot be reached, or tf_byteps
            runs with another configuration.
        TypeError: an argument is of another type than it must be.
        ValueError: `staleness` is out of range, or set with what is about gradients or rounds;
            `backup_workers` is not possible in this job, or not with `cross_step`; there is
            no such `compression`, or not with `cross_step`; `local_steps` with one of these, or
            what is about its rounds is out of range.

    Example:

    ```python
    strategy = tf_byteps.BytePSStrategy()
    with strategy.scope():
        model = keras.Sequential([keras.layers.Dense(10, activation="softmax")])
        model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    model.fit(images, labels, batch_size=64)  # 64 over all workers
    ```
    """

    def __init__(
        self,
        config: Config | None = None,
        cross_step: bool = False,
        backup_workers: int | None = None,
        sparse_as_dense: bool = False,
        merge_repeated_rows: bool = True,
        compression: CompressionChoice = Compression.none,
        local_steps: int | None = None,
        outer: str = "average",
        outer_learning_rate: float | None = None,
        outer_momentum: float | None = None,
        fragments: int = 1,
        delay: int = 0,
        mix: float | None = None,
        warmup_steps: int = 0,
        flash_attention: bool = False,
        staleness: int | str = 0,
        quorum: int | None = None,
        grace: float | None = None,
    ) -> None:
        of_rounds = (
            outer,
            outer_learning_rate,
            outer_momentum,
            fragments,
            delay,
            mix,
            warmup_steps,
            quorum,
            grace,
        )
        rounds = _local_steps(local_steps, *of_rounds)
        self.local_steps = _or_staleness(rounds, staleness, local_steps)
        self.staleness = staleness
        _check_flags(
            cross_step=cross_step,
            sparse_as_dense=sparse_as_dense,
            merge_repeated_rows=merge_repeated_rows,
            flash_attention=flash_attention,
        )
        compression = resolve_choice(compression)
        if cross_step:
            check_with_cross_step(compression)
        runtime.init(config)
        _check_job(staleness, self.local_steps)
        super().__init__(BytePSExtended(self))
        self.cross_step = bool(cross_step)
        self.sparse_as_dense = bool(sparse_as_dense)
        self.merge_repeated_rows = merge_repeated_rows
        self.flash_attention = bool(flash_attention)
        self.compression = compression
        self._backup_workers = backup_workers
        self._check_together(local_steps)
        shuffle.agree_on_seed(self)
        framework.use(TensorFlow())
        keras_hooks.install()

    def _check_together(self, local_steps: int | None) -> None:
        """Refuses what cannot be set together; `local_steps` is as it was given."""
        if isinstance(self.local_steps, Staleness):
            self._check_asynchronous()
        is_local = isinstance(self.local_steps, LocalSteps)
        if is_local and (self.cross_step or self.backup_workers):
            other = "cross_step" if self.cross_step else "backup_workers"
            raise ValueError(
                f"local_steps is {local_steps}, and {other} is set, which is about gradients; "
                "local steps exchange none: choose one of them"
            )
        backup.check_with_cross_step(self.backup_workers, self.cross_step)

    def _check_asynchronous(self) -> None:
        others = {
            "cross_step": self.cross_step,
            "backup_workers": self.backup_workers,
            "compression": self.compression is not Compression.none,
        }
        for name, is_set in others.items():
            if is_set:
                raise ValueError(
                    f"staleness is {self.staleness!r}, and {name} is set, which is about "
                    "gradients; asynchronous training exchanges none: choose one of them"
                )
        check_store()

    @property
    def num_replicas_in_sync(self) -> int:
        """The number of workers."""
        batch = local_batch.current()
        if batch is not None and is_asked_by_user():
            batch.scaling.scaled_by_user()
        return super().num_replicas_in_sync

    @property
    def backup_workers(self) -> int:
        """How many workers an average of gradients does without, with the present workers."""
        return backup.backup_workers(self._backup_workers)

    def run(
        self,
        fn: Callable[..., Any],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        options: object = None,
    ) -> Any:
        """Runs `fn` as this worker's replica. See `tf.distribute.Strategy.run`.

        Args:
            fn: the function to run.
            args: its positional arguments, for example a batch of a distributed dataset: this
                worker's piece.
            kwargs: its keyword arguments.
            options: unused.

        Returns:
            What `fn` returns: this worker's own value. Use `reduce` or `gather` to see all
            workers'.
        """
        self.extended.synchronize_new_variables()
        step = checking_rows(self, fn, distributed_step(self, fn))
        result = super().run(step, args, kwargs, options)
        # What a function creates while it is traced must be equal when it runs.
        self.extended.synchronize_new_variables()
        return result


def _local_steps(steps: int | None, *of_rounds: Any) -> LocalSteps | None:
    if steps is not None:
        return LocalSteps(steps, *of_rounds)
    defaults = [field.default for field in dataclasses.fields(LocalSteps)[1:]]
    for field, given, default in zip(
        dataclasses.fields(LocalSteps)[1:], of_rounds, defaults, strict=True
    ):
        if given != default:
            raise ValueError(
                f"{field.name} is {given!r}, which is about the outer rounds of local steps, but "
                "local_steps is not set: say how many steps a worker makes between two rounds"
            )
    return None


def _or_staleness(
    rounds: LocalSteps | None, staleness: int | str, local_steps: int | None
) -> LocalSteps | Staleness | None:
    """How steps exchange changes: in `rounds`, or asynchronously if `staleness` is set."""
    if staleness == 0 and not isinstance(staleness, bool):
        return rounds
    asynchronous = Staleness(staleness)
    if rounds is not None:
        raise ValueError(
            f"staleness is {staleness!r} and local_steps is {local_steps}: a worker sends "
            "its changes after each step, or after several; choose one of them"
        )
    return asynchronous


def _check_flags(**flags: object) -> None:
    for name, flag in flags.items():
        if flag not in (True, False):
            raise TypeError(f"{name} must be True or False, got {flag!r}")


def _check_job(staleness: int | str, changes: LocalSteps | Staleness | None) -> None:
    """What a job's settings ask for, and this strategy does not."""
    settings = runtime.config()
    if settings.enable_async and staleness == 0:
        raise ValueError(
            "BYTEPS_ENABLE_ASYNC is 1, and BytePSStrategy trains synchronously: unset it, or take "
            "BytePSStrategy(staleness=...)"
        )
    # TensorFlow's setting must be there before `tf_byteps.init`, which tells the servers.
    if runtime.op_determinism() and runtime.size() > 1 and not settings.deterministic:
        raise BytePSError(
            "op determinism is on, but this job was started without it, so that its sums depend on "
            "the order in which workers send: call tf.config.experimental.enable_op_determinism() "
            "before tf_byteps.init(), or set BYTEPS_DETERMINISTIC=1"
        )
    if isinstance(changes, LocalSteps):
        changes.check_job(runtime.size(), settings.elastic, settings.deterministic)
