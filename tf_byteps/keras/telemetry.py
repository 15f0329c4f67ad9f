"""Scalars for TensorBoard about the steps of `keras.Model.fit`."""

import os
import time
import warnings

import keras

from tf_byteps import _engine, runtime, step_counters
from tf_byteps.keras.framework import current
from tf_byteps.keras.interface import ScalarWriter
from tf_byteps.types import Logs

_EXPOSED = "exposed_communication_seconds_per_step"
_INPUT = "input_wait_seconds_per_step"
# The engine's own, which begin with the second step.
_STEPS = ("steps", "unmeasured_steps", "step_seconds", "samples")
_COUNTED = {  # the scalar's name, and the engine's for the counter
    "exchanging_seconds_per_step": "exchanging_seconds",
    _EXPOSED: "exposed_seconds",
    _INPUT: "input_seconds",
    "pushed_bytes_per_step": "pushed_bytes",
    "pulled_bytes_per_step": "received_bytes",
}
# Of local and of asynchronous steps; not written without any.
_OUTER = ("outer_rounds", "saved_bytes", "asynchronous_steps", "stale_changes")


class Telemetry(keras.callbacks.Callback):
    """Writes for TensorBoard what worker 0's steps cost, every `every_steps` steps and per epoch.

    Scalars are means over the steps since the last point, and begin with `tf_byteps/step/` or
    `tf_byteps/epoch/`: `seconds_per_step`, `exchanging_seconds_per_step` (with at least one
    exchange in flight, hidden behind computation or not), `exposed_communication_seconds_per_step`
    (in which the step only waited for sums; not with `cross_step=True`, where that is not known),
    `input_wait_seconds_per_step` (until a batch of `tf.data` was there) and `samples_per_second`
    (this worker's), both on TensorFlow only, `pushed_bytes_per_step` and `pulled_bytes_per_step`.
    `arrival_lag_seconds` is the largest of `tf_byteps.arrival_lags`, and `last_worker` the rank
    that has it.
    With local steps: `outer_rounds` and `steps_since_outer_round` so far, `saved_bytes_per_step`
    and `weight_divergence` (worker 0's in the last round). In asynchronous training: `staleness`,
    the mean of worker 0's steps.
    The first point has the time in which the step was traced. With one worker nothing is exchanged,
    and only the time is written. Steps are counted on from one `fit` to the next. If the files
    cannot be written, there is a warning, and training goes on without them. Keras on JAX needs the
    package `tensorboard` for them.

    Args:
        log_dir: the directory of the event files; "telemetry" is made in it.
        every_steps: how many steps lie between two points.

    Raises:
        ValueError: if `every_steps` is not a whole number from 1 on.

    Example:

    >>> model.fit(x, y, callbacks=[Telemetry("logs", every_steps=50)])
    """

    def __init__(self, log_dir: str | os.PathLike[str] = "logs", every_steps: int = 100) -> None:
        super().__init__()
        if isinstance(every_steps, bool) or not isinstance(every_steps, int) or every_steps < 1:
            raise ValueError(
                f"every_steps is {every_steps!r}, but must be a whole number from 1 on"
            )
        self._directory = os.path.join(log_dir, "telemetry")
        self._every = every_steps
        self._writer: ScalarWriter | None = None
        self._steps = self._epochs = 0
        self._epoch_steps = 0
        self._epoch_began = self._point_began = (0, {})

    def on_train_begin(self, logs: Logs = None) -> None:
        """Opens the event file, on worker 0."""
        if runtime.rank() != 0:
            return
        try:
            self._writer = current().scalar_writer(self._directory)
        except (OSError, ImportError) as error:
            cure = "" if isinstance(error, ImportError) else "; choose another log_dir"
            warnings.warn(
                f"Telemetry writes nothing to {self._directory}: {error}. Training goes on without "
                f"it{cure}",
                stacklevel=2,
            )

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:
        """Begins to count, so that no validation is counted."""
        self._epoch_steps = 0
        self._epoch_began = self._point_began = (0, _now())

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        """Writes a point when its steps are done."""
        done = batch + 1  # Keras ends several steps at once with `steps_per_execution`
        self._steps += done - self._epoch_steps
        self._epoch_steps = done
        if self._writer is not None and done - self._point_began[0] >= self._every:
            self._point_began = self._write("step", self._steps, self._point_began)

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        """Writes the epoch's point."""
        if self._writer is not None and self._epoch_steps:
            self._write("epoch", self._epochs, self._epoch_began)
            self._writer.flush()
        self._epochs += 1

    def on_train_end(self, logs: Logs = None) -> None:
        """Closes the event file."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _write(
        self, kind: str, position: int, began: tuple[int, dict[str, float]]
    ) -> tuple[int, dict[str, float]]:
        assert self._writer is not None
        first, before = began
        now = _now()
        steps = self._epoch_steps - first
        written = (before.keys() & now.keys()) - {*_STEPS, *_OUTER}
        counted, unmeasured, seconds, samples = (
            now.get(key, 0) - before.get(key, 0) for key in _STEPS
        )
        if not counted or unmeasured:
            written -= {_EXPOSED}  # it is not known
        if not current().counts_input:
            written -= {_INPUT}
        scalars = {name: (now[name] - before[name]) / steps for name in written} | _lag()
        scalars |= _outer(before, now, steps)
        if samples and seconds:
            scalars["samples_per_second"] = samples / seconds
        for name, value in scalars.items():
            self._writer.write(f"tf_byteps/{kind}/{name}", value, position)
        return self._epoch_steps, now


def _outer(before: dict[str, float], now: dict[str, float], steps: int) -> dict[str, float]:
    """What there is to say of rounds and of staleness."""
    _, saved, made, stale = (now[key] - before.get(key, 0) for key in _OUTER)
    counted = step_counters.read()
    scalars = {}
    if counted["outer_rounds"]:
        scalars["outer_rounds"] = counted["outer_rounds"]
        scalars["steps_since_outer_round"] = counted["steps_since_round"]
        scalars["saved_bytes_per_step"] = saved / steps
        scalars["weight_divergence"] = counted["divergence"]
    if made:
        scalars["staleness"] = stale / made
    return scalars


def _lag() -> dict[str, float]:
    """Who comes last, and by how much; nothing before the servers' first report."""
    lags = _engine.arrival_lags()
    if not lags:
        return {}
    last = max(lags, key=lambda worker: worker["recent_ms"])
    return {"arrival_lag_seconds": last["recent_ms"] / 1e3, "last_worker": last["rank"]}


def _now() -> dict[str, float]:
    counters = _engine.worker_counters()
    keys = {**_COUNTED, **{key: key for key in _STEPS}}
    values = {name: counters[key] for name, key in keys.items()} if counters else {}
    counted = step_counters.read()
    values |= {key: counted[key] for key in _OUTER}
    return {"seconds_per_step": time.monotonic(), **values}
