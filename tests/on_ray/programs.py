"""What workers do in the tests of Ray."""

import json
import os
import signal
import tempfile
import time

import numpy as np

import tf_byteps
from tf_byteps import _engine


def train(base):
    """One exchange; returns rank, size, local rank, local size and the sum."""
    tf_byteps.init()
    given = np.full(3, base + tf_byteps.rank(), np.float32)
    total = float(_engine.exchange(given, name="x").wait(30)[0])
    return (
        tf_byteps.rank(), tf_byteps.size(), tf_byteps.local_rank(), tf_byteps.local_size(), total
    )  # fmt: skip


def raise_on_rank_1():
    tf_byteps.init()
    if tf_byteps.rank() == 1:
        raise ValueError("no such data")
    _engine.exchange(np.ones(1), name="x").wait(60)


def die_on_rank_1():
    tf_byteps.init()
    if tf_byteps.rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    _engine.exchange(np.ones(1), name="x").wait(60)


def raise_at_once():
    raise ValueError("no such data")


def return_late():
    """Rank 0 has still something to do when the other has returned."""
    tf_byteps.init()
    total = float(_engine.exchange(np.ones(1, np.float32), name="x").wait(60)[0])
    if tf_byteps.rank() == 0:
        time.sleep(5)
    return tf_byteps.rank(), total


def train_elastic(how, folder, epochs):
    """See tests/elastic/training.py; returns the rank at the end."""
    from tests.elastic import training

    training.main(how, folder, epochs)
    return tf_byteps.rank()


def only_rank_0_joins():
    if os.environ["BYTEPS_GLOBAL_RANK"] == "0":
        tf_byteps.init()


def kill_the_raylet(node):
    """The worker on this node kills its parent."""
    import ray

    tf_byteps.init()
    if ray.get_runtime_context().get_node_id() == node:
        os.kill(os.getppid(), signal.SIGKILL)
    _engine.exchange(np.ones(1), name="x").wait(60)


def _model():
    import keras

    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
    model.compile("adam", "mse")
    return model


def _train(model, **arguments):
    """Returns the weights."""
    x = np.random.default_rng(1).normal(size=(64, 4)).astype(np.float32)
    model.fit(x, x.sum(axis=1), batch_size=16, shuffle=False, verbose=0, **arguments)
    return np.concatenate([w.ravel() for w in model.get_weights()]).tolist()


def fit(epochs=2):
    """Trains a small model; returns its weights."""
    with tf_byteps.BytePSStrategy().scope():
        model = _model()
    return _train(model, epochs=epochs)


def fit_from_checkpoint(settings):
    """A training loop of Ray Train's that goes on from Ray's checkpoint. Worker 0 writes its end.

    Args:
        settings: "results": a file, for the epochs of the last attempt and the weights; "dies": a
            file that rank 1 leaves when it dies after two epochs, once.
    """
    import keras
    import ray.train

    import tf_byteps.ray

    tf_byteps.ray.setup()
    checkpoint, first = ray.train.get_checkpoint(), 0
    with tf_byteps.BytePSStrategy().scope():
        if checkpoint is None:
            model = _model()
        else:
            with checkpoint.as_directory() as folder:
                model = keras.models.load_model(os.path.join(folder, "model.keras"))
                with open(os.path.join(folder, "epochs.json")) as file:
                    first = json.load(file)
    epochs = []

    class Report(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            epochs.append(epoch)
            with tempfile.TemporaryDirectory() as folder:
                checkpoint = None
                if tf_byteps.rank() == 0:
                    self.model.save(os.path.join(folder, "model.keras"))
                    with open(os.path.join(folder, "epochs.json"), "w") as file:
                        json.dump(epoch + 1, file)
                    checkpoint = ray.train.Checkpoint.from_directory(folder)
                ray.train.report(logs, checkpoint=checkpoint)  # all workers come here
            if tf_byteps.rank() == 1 and epoch == 1 and not os.path.exists(settings["dies"]):
                ray.train.get_all_reported_checkpoints()  # returns once Ray has kept them
                open(settings["dies"], "w").close()
                os._exit(9)

    weights = _train(model, initial_epoch=first, epochs=4, callbacks=[Report()])
    if tf_byteps.rank() == 0:
        with open(settings["results"], "w") as file:
            json.dump([epochs, weights], file)


def fit_in_ray_train(settings):
    """A training loop of Ray Train's. Worker 0 writes what it has at the end.

    Args:
        settings: "results": a file, for the number of workers and the weights; "setup": whether to
            call it; "dies": a file that rank 1 leaves when it dies, once.
    """
    if settings["setup"]:
        import tf_byteps.ray

        tf_byteps.ray.setup()
    weights = fit()
    flag = settings.get("dies")
    if flag and tf_byteps.rank() == 1 and not os.path.exists(flag):
        open(flag, "w").close()
        os._exit(9)
    total = _engine.exchange(np.ones(1, np.float32), name="last").wait(30)[0]
    if tf_byteps.rank() == 0:
        with open(settings["results"], "w") as file:
            json.dump([float(total), weights], file)
