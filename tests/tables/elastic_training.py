"""Trains with tables on the servers: `python -m tests.tables.elastic_training HOW FOLDER EPOCHS`.

HOW is "fit", in an elastic job, or "refused": what an elastic job says about layers that it cannot
have. FOLDER: see `tests.elastic.training`. `result.json` has all weights and tables. `plain` trains
in one process, which the others are compared with.
"""

import json
import os
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
from tests.elastic.progress import BATCHES, COMMIT, SECONDS, Noting
from tests.tables import on_servers_programs as programs
from tf_byteps.keras import layers
from tf_byteps.tables import elastic_tables, server_requests

BATCH = 10  # over all workers
ROWS = BATCHES * BATCH - 7


def batches(epoch):
    """All batches of an epoch: the same on every worker, whatever their number."""
    random = np.random.default_rng(epoch)
    words = (random.zipf(1.3, (ROWS, 6)) % programs.WORDS).astype("int64")
    inputs = {"words": words, "users": random.integers(0, programs.USERS, ROWS)}
    targets = np.cos(words.sum(axis=1, keepdims=True)).astype("float64")
    return tf.data.Dataset.from_tensor_slices((inputs, targets)).batch(BATCH)


class KerasState(Noting, bps.elastic.KerasState):
    """Says how far it has come."""


class Pause(keras.callbacks.Callback):
    """Lets no batch take less than some time."""

    reads_weights = False

    def on_train_batch_end(self, batch, logs=None):
        time.sleep(SECONDS)


def train(state, epochs):
    """Trains with `Model.fit`, an epoch at a time."""
    state.note("begin")
    while state.epoch < epochs:
        callbacks = [
            bps.elastic.CommitStateCallback(state, COMMIT),
            bps.elastic.UpdateBatchStateCallback(state),
            bps.elastic.UpdateEpochStateCallback(state),
            Pause(),
        ]
        rest = batches(state.epoch).skip(state.batch)
        until = {"initial_epoch": state.epoch, "epochs": state.epoch + 1}
        state.model.fit(rest, shuffle=False, verbose=0, callbacks=callbacks, **until)


def fit(folder, epochs):
    """In an elastic job."""
    with bps.BytePSStrategy().scope():
        model = programs.made(programs.on_servers, "Adagrad")
    state = KerasState(model, epoch=0, batch=0)
    state.folder = folder
    bps.elastic.run(train)(state, epochs)
    if bps.rank() == 0:
        layer = model.get_layer("tables")
        servers = range(int(os.environ["DMLC_NUM_SERVER"]))
        kept = [elastic_tables._ask(server, server_requests.KEPT) for server in servers]
        iterations = [int(each.iterations) for each in layer.table_optimizers.values()]
        report(folder, model, layer.get_embedding_tables(), len(b"".join(kept)), iterations)


def plain(folder, epochs):
    """In one process, with a table in an `Embedding`."""
    model = programs.made(programs._plain, "Adagrad")
    for epoch in range(epochs):
        model.fit(batches(epoch), shuffle=False, verbose=0)
    tables = {name: model.get_layer(name).get_weights()[0] for name in programs.TABLES}
    report(folder, model, tables, 0, [int(model.optimizer.iterations)])


def refused(folder, epochs):
    """Layers of an elastic job whose servers are in its workers."""
    del epochs
    spread = layers.TableConfig("words", 10, 4, optimizer="sgd")
    on_servers = layers.TableConfig("users", 10, 4, optimizer="sgd", placement="servers")
    errors = []
    with bps.BytePSStrategy().scope():
        for table in (spread, on_servers):
            feature = layers.FeatureConfig("feature", table)
            try:
                layers.DistributedEmbedding(feature, name="tables").build()
            except RuntimeError as error:
                errors.append(str(error))
    with open(os.path.join(folder, "result.json"), "w") as file:
        json.dump(errors, file)


def report(folder, model, tables, kept_bytes, iterations):
    """Writes what came of it."""
    dense = [*model.get_layer("hidden").get_weights(), *model.get_layer("out").get_weights()]
    result = {
        "tables": {name: np.asarray(value).tolist() for name, value in tables.items()},
        "dense": [value.tolist() for value in dense],
        "kept_bytes": kept_bytes,
        "iterations": iterations,
    }
    with open(os.path.join(folder, "result.json"), "w") as file:
        json.dump(result, file)


if __name__ == "__main__":
    {"fit": fit, "refused": refused}[sys.argv[1]](sys.argv[2], int(sys.argv[3]))
    bps.shutdown()
