"""A worker of an elastic job that trains a character model while workers are killed.

`python -m benchmarks.programs.churn_training HOW FOLDER SECONDS ROWS COMPUTE`, see
`benchmarks.churn`. HOW is "quorum" (local steps) or "synchronous" (commits). It ends after SECONDS
or when ROWS are in the weights, whichever is given; 0: not. Each step takes COMPUTE seconds more
than it computes: the processors of an emulated worker are its own.

Each worker writes lines to a file of its own in FOLDER: the time, and how many rows are in the
weights that all go on from. Rank 0 writes `result.json`.
"""

import json
import os
import pathlib
import sys
import sysconfig
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
import tensorflow as tf

import tf_byteps as bps

BATCH = 128  # of a worker
LOCAL_STEPS = 16
COMMIT = 20  # steps
_CONTEXT, _CHARACTERS = 8, 96
_VALIDATED = 50_000


class Training:
    """What is made once, whoever comes and goes: the model, its data, and a step."""

    def __init__(self, exchanges, compute):
        self.exchanges, self._compute = exchanges, compute
        keras.utils.set_random_seed(1)
        self.model = keras.Sequential(
            [
                keras.Input([_CONTEXT], dtype="int32"),
                keras.layers.Embedding(_CHARACTERS, 16),
                keras.layers.Flatten(),
                keras.layers.Dense(256, activation="relu"),
                keras.layers.Dense(_CHARACTERS),
            ]
        )
        self.model.compile(keras.optimizers.Adam(0.001))
        self.model.optimizer.build(self.model.trainable_variables)
        train, self._validation = _text()
        self._random = np.random.default_rng(os.getpid())
        self._train = train
        self._step = tf.function(self._own_step, autograph=False)
        self._loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        if not exchanges:  # traced before the others wait for this worker
            self._step.get_concrete_function(*_windows(train, self._random, BATCH))

    def step(self):
        self._step(*_windows(self._train, self._random, BATCH))
        time.sleep(self._compute)

    def _own_step(self, context, following):
        weights = [each.value for each in self.model.trainable_variables]
        with tf.GradientTape() as tape:
            loss = self._loss(following, self.model(context, training=True))
        gradients = [tf.convert_to_tensor(each) for each in tape.gradient(loss, weights)]
        if self.exchanges:
            gradients = bps.push_pull(gradients, name="gradients")
        self.model.optimizer.apply(gradients, self.model.trainable_variables)

    def validation_loss(self):
        drawn = _windows(self._validation, np.random.default_rng(1), _VALIDATED)
        return float(self._loss(drawn[1], self.model(drawn[0])))


def _text():
    folder = pathlib.Path(sysconfig.get_path("stdlib"))
    text = b"\n".join(path.read_bytes() for path in sorted(folder.glob("*.py")))
    codes = np.frombuffer(text, np.uint8).astype(np.int32) - ord(" ") + 1
    codes[(codes < 1) | (codes >= _CHARACTERS)] = 0
    end = len(codes) * 9 // 10
    return codes[:end], codes[end:]


def _windows(text, random, count):
    begins = random.integers(0, len(text) - _CONTEXT, (count, 1))
    drawn = text[begins + np.arange(_CONTEXT + 1)]
    return tf.constant(drawn[:, :-1]), tf.constant(drawn[:, -1])


class Log:
    """Writes what is in the weights."""

    def __init__(self, folder):
        self._path = os.path.join(folder, f"rows-{os.environ['BYTEPS_MEMBER']}.txt")
        self._last = None

    def note(self, rows):
        if rows != self._last:
            self._last = rows
            with open(self._path, "a") as file:
                file.write(f"{time.time():.3f} {rows}\n")


def by_quorum(training, log, is_over):
    """Trains by local steps, of which no worker's are lost but those of who is killed."""

    def make_outer():
        weights = training.model.trainable_variables
        return bps.OuterSync(weights, LOCAL_STEPS, quorum=3)

    state = bps.elastic.OuterSyncState(training.model, make_outer)

    @bps.elastic.run
    def train(state):
        outer = state.outer
        while not (is_over(state.rows_done) or outer.others_wait):
            training.step()
            outer.step(rows=BATCH)
            log.note(state.rows_done)
        outer.finish()

    train(state)
    return state.rows_done


def synchronously(training, log, is_over):
    """Trains by exchanging gradients. What has been done since the last commit is done again."""
    state = bps.elastic.KerasState(training.model, rows=0)

    @bps.elastic.run
    def train(state):
        log.note(state.rows)
        while True:
            for _ in range(COMMIT):
                training.step()
            state.rows += COMMIT * BATCH * bps.size()
            over = bps.push_pull(tf.constant(int(is_over(state.rows))), op="max", name="over")
            state.commit()
            log.note(state.rows)
            if over:
                return

    train(state)
    return state.rows


def main(how, folder, seconds, rows, compute):
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    training = Training(how == "synchronous", float(compute))
    begin = pathlib.Path(folder) / "begin.txt"

    def is_over(done):
        if not begin.exists():  # no step has been made
            return False
        over = float(seconds) and time.time() > float(begin.read_text()) + float(seconds)
        return bool(over) or 0 < int(rows) <= done

    train = {"quorum": by_quorum, "synchronous": synchronously}[how]
    done = train(training, Log(folder), is_over)
    if bps.rank() == 0:
        result = {"rows": done, "loss": training.validation_loss()}
        (pathlib.Path(folder) / "result.json").write_text(json.dumps(result))
    bps.shutdown()


if __name__ == "__main__":
    main(*sys.argv[1:])
