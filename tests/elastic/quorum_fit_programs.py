"""`Model.fit` with a quorum while a worker is lost and another comes: see test_quorum_fits.py.

`python -m tests.elastic.quorum_fit_programs FOLDER HOW` is a worker. It writes what it has done and
seen into FOLDER. Worker 2 kills itself within the second epoch. The others go on until two epochs
after another one has come.
"""

import json
import os
import pathlib
import signal
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

if __name__ == "__main__":
    from tests import quick_start

    quick_start.leave_out_packages("jax")

import keras
import numpy as np
import tensorflow as tf

import tf_byteps as bps
from tf_byteps.elastic.states import any_worker
from tf_byteps.strategy.step import local_steps

BATCHES, ROWS = 20, 12  # of an epoch; of a batch
DIES_IN_EPOCH, DIES_AFTER = 1, 7
_PAUSE, _SLOW = 0.03, 0.3
_SETTINGS = {
    "average": {"local_steps": 4, "quorum": 2},
    "diloco": {"local_steps": 6, "quorum": 2, "outer": "diloco", "fragments": 2, "delay": 2},
    "warmup": {"local_steps": 4, "quorum": 2, "warmup_steps": 40},
    "saves": {"local_steps": 4, "quorum": 2},
    # When another worker is to be let in, worker 1 waits for worker 0 in a round.
    "slow": {"local_steps": 4, "quorum": 2},
}


def batches(epoch):
    """All batches of an epoch: the same on every worker, whatever their number."""
    random = np.random.default_rng(epoch)
    x = random.normal(size=(BATCHES * ROWS, 6)).astype("float32")
    return tf.data.Dataset.from_tensor_slices((x, x.sum(axis=1, keepdims=True))).batch(ROWS)


class Watch(keras.callbacks.Callback):
    """Notes what callbacks see; kills worker 2."""

    def __init__(self, state, folder, member, pause):
        super().__init__()
        self.state, self.folder, self.member, self.pause = state, folder, member, pause
        self.epochs, self.losses, self.begins = [], [], []
        self.steps, self.traced = 0, []

    def loss(self, expected, computed):
        """Notes with how many workers the step is traced."""
        self.traced.append(bps.size())
        return keras.losses.mean_squared_error(expected, computed)

    def on_epoch_begin(self, epoch, logs=None):
        self.begins.append([epoch, self.state.batch, bps.size()])

    def on_train_batch_end(self, batch, logs=None):
        self.steps = int(self.model.optimizer.iterations)
        if self.member == 2 and epoch_and_batch(self.state) >= (DIES_IN_EPOCH, DIES_AFTER):
            self.write()
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(self.pause)

    def on_epoch_end(self, epoch, logs=None):
        self.epochs.append(epoch)
        self.losses.append(logs.get("loss"))
        has_come = any_worker("joined", (self.folder / "joined").exists())
        if has_come and self.state.last is None:
            self.state.last = epoch + 3

    def write(self):
        training = local_steps._of_models[self.state.model]
        fragments = getattr(training.rounds, "_fragments", [])
        weights = [np.asarray(each) for each in self.state.model.get_weights()]
        found = {
            "rows": int(training.rounds.rows),
            "in rounds": [each._seen_rows - each._carried_rows for each in fragments],
            "rows done": [each.rows_done for each in fragments],
            "iterations": int(self.state.optimizer.iterations),
            "steps": self.steps,
            "epochs": self.epochs,
            "begins": self.begins,
            "losses": self.losses,
            "traced": self.traced,
            "weights": [each.tolist() for each in weights],
        }
        (self.folder / f"record-{self.member}.json").write_text(json.dumps(found))


def epoch_and_batch(state):
    return state.epoch, state.batch


def exchange_in_steps():
    """Whether local steps are known to exchange: of a model without such a layer, and with one."""
    strategy = bps.BytePSStrategy(local_steps=4, quorum=1)
    x = np.random.default_rng(0).normal(size=(48, 6)).astype("float32")
    found = []
    for synchronized in (False, True):
        with strategy.scope():
            layer = keras.layers.BatchNormalization(synchronized=synchronized)
            model = keras.Sequential([keras.Input([6]), layer, keras.layers.Dense(1)])
            model.compile("adam", "mse")
        model.fit(x, x[:, :1], batch_size=12, verbose=0)
        found.append(local_steps._of_models[model]._exchanges)
    return found


def main(folder, how):
    folder, member = pathlib.Path(folder), int(os.environ["BYTEPS_MEMBER"])
    keras.utils.set_random_seed(1)
    strategy = bps.BytePSStrategy(**_SETTINGS[how])
    with strategy.scope():
        layers = [keras.layers.Dense(8, activation="tanh"), keras.layers.BatchNormalization()]
        model = keras.Sequential([keras.Input([6]), *layers, keras.layers.Dense(1)])
        model.compile(keras.optimizers.Adam(0.01), lambda *given: watch.loss(*given))
    state = bps.elastic.KerasState(model, epoch=0, batch=0, last=None)
    watch = Watch(state, folder, member, _SLOW if (how, member) == ("slow", 0) else _PAUSE)

    @bps.elastic.run
    def train(state):
        if member == 3:
            (folder / "joined").touch()
        while state.last is None or state.epoch < state.last:
            callbacks = [
                bps.elastic.CommitStateCallback(state, batches_per_commit=5),
                bps.elastic.UpdateBatchStateCallback(state),
                bps.elastic.UpdateEpochStateCallback(state),
                watch,
            ]
            if how == "saves":
                path = str(folder / "{epoch}-{batch}.weights.h5")
                callbacks.append(
                    keras.callbacks.ModelCheckpoint(path, save_freq=7, save_weights_only=True)
                )
            model.fit(
                batches(state.epoch).skip(state.batch),
                initial_epoch=state.epoch,
                epochs=state.epoch + 1,
                shuffle=False,
                verbose=0,
                callbacks=callbacks,
            )

    train(state)
    watch.write()
    bps.shutdown()


if __name__ == "__main__":
    main(*sys.argv[1:])
