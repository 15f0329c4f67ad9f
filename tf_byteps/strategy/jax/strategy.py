"""The strategy that users see where Keras runs on JAX."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from tf_byteps import runtime
from tf_byteps.config import Config
from tf_byteps.exchange import backup
from tf_byteps.exchange.compression import Compression, check_with_cross_step
from tf_byteps.exchange.compression_choice import CompressionChoice, resolve_choice
from tf_byteps.strategy.fit import framework
from tf_byteps.strategy.jax import hooks, initial_values, scopes
from tf_byteps.strategy.jax.framework import Jax

if TYPE_CHECKING:
    import keras

# What only TensorFlow's strategy does, with the value that asks for nothing.
_TENSORFLOWS = {
    "merge_repeated_rows": True,
    "local_steps": None,
    "outer": "average",
    "outer_learning_rate": None,
    "outer_momentum": None,
    "fragments": 1,
    "delay": 0,
    "mix": None,
    "warmup_steps": 0,
    "staleness": 0,
    "flash_attention": False,
    "quorum": None,
    "grace": None,
}


class BytePSStrategy:
    """Synchronous data-parallel training of Keras on JAX, one replica in each worker process.

    Every worker runs the same program with the same data, and trains on its piece of each batch, as
    TensorFlow's `BytePSStrategy` does. Gradients, losses, metrics and files are those of one
    process. docs/keras_on_jax.md lists what differs.

    Args:
        config: a `tf_byteps.Config`, as for `tf_byteps.init()`, which is called with it. Default:
            from the environment; with nothing there it is one worker without any network.
        compression: how gradients are made smaller on the wire: a member of `Compression` or its
            name, such as `"int8"`, or a function that returns one (or `None`) for a
            `keras.Variable`; the same on all workers.
        backup_workers: a number b: the average of a gradient does not wait for the last b workers:
            see docs/stragglers.md. Default: from the configuration.
        cross_step: whether steps of `Model.fit` leave their updates to the next step, whose forward
            pass then begins while the last gradients are still in flight. See docs/api.md.
        **others: what TensorFlow's strategy takes besides. `sparse_as_dense` asks for what is:
            gradients of embeddings are dense on JAX. Nothing else works on JAX yet.

    Raises:
        tf_byteps.errors.BytePSError: the other processes of the job cannot be reached, tf_byteps
            runs with another configuration, or it asks for what does not work on JAX.
        NotImplementedError: an argument asks for what does not work on JAX.
        TypeError: there is no such argument, or one is of another type.
        ValueError: there is no such `compression`, or not with `cross_step`; `backup_workers` is
            not possible in this job, or not with `cross_step`.

    Example:

    ```python
    os.environ["KERAS_BACKEND"] = "jax"  # before keras is imported
    with tf_byteps.BytePSStrategy().scope():
        model = keras.Sequential([keras.layers.Dense(10, activation="softmax")])
        model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    model.fit(images, labels, batch_size=64)  # 64 over all workers
    ```
    """

    def __init__(
        self,
        config: Config | None = None,
        compression: CompressionChoice = Compression.none,
        backup_workers: int | None = None,
        cross_step: bool = False,
        **others: object,
    ) -> None:
        others.pop("sparse_as_dense", None)  # gradients of embeddings are dense on JAX
        for name, value in others.items():
            if name not in _TENSORFLOWS:
                raise TypeError(f"BytePSStrategy has no argument {name!r}")
            if value != _TENSORFLOWS[name]:
                raise NotImplementedError(
                    f"{name} is {value!r}, which BytePSStrategy does not support with "
                    "KERAS_BACKEND=jax: leave it out, or use KERAS_BACKEND=tensorflow"
                )
        if cross_step not in (True, False):
            raise TypeError(f"cross_step must be True or False, got {cross_step!r}")
        self.compression = resolve_choice(compression)
        if cross_step:
            check_with_cross_step(self.compression)
        runtime.init(config)
        self.cross_step = bool(cross_step)
        self._backup_workers = backup_workers
        backup.check_with_cross_step(self.backup_workers, self.cross_step)
        self.extended = _Extended()
        framework.use(Jax())
        hooks.install()

    @property
    def num_replicas_in_sync(self) -> int:
        """The number of workers."""
        return runtime.size()

    @property
    def backup_workers(self) -> int:
        """How many workers an average of gradients does without, with the present workers."""
        return backup.backup_workers(self._backup_workers)

    @contextlib.contextmanager
    def scope(self) -> Iterator[None]:
        """Models that are made, compiled or trained in it belong to the strategy."""
        with scopes.entered(self):
            yield


class _Extended:
    """What is shared with TensorFlow's strategy asks for by this name."""

    is_byteps = True

    @property
    def should_checkpoint(self) -> bool:
        """Whether this worker writes the files of callbacks."""
        return runtime.rank() == 0

    def synchronize_model(self, model: keras.Model) -> None:
        """Gives worker 0's values to all variables of a model and its optimizer. A collective."""
        initial_values.synchronize(model)
