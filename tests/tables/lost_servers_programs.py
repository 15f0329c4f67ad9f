"""What the workers of test_lost_servers.py do."""

import hashlib
import pathlib
import time

import keras  # noqa: F401  (on TensorFlow)

import tf_byteps
from tests.cluster import wait_until
from tests.tables import on_servers_programs as programs

# After each epoch, of which the undisturbed training has as many: servers are killed for seconds.
_PAUSE_SECONDS = 0.5


def train(folder, epochs, waits):
    """Trains an epoch, waits to be told, and trains on. Returns a digest of all weights."""
    tf_byteps.init()
    with tf_byteps.BytePSStrategy().scope():
        model = programs.made(programs.on_servers, "LazyAdam")
        programs.fit(model, 1)
        pathlib.Path(folder, f"trained_{tf_byteps.rank()}").touch()
        if waits:
            wait_until(pathlib.Path(folder, "go_on").exists, 240)
        message = "no error"
        try:
            programs.fit(model, epochs)
        except Exception as error:
            message = str(error)
            return message, ""
        tables = model.get_layer("tables").get_embedding_tables()
        weights = [*tables.values(), *model.get_layer("hidden").get_weights()]
        digest = hashlib.sha256(b"".join(each.tobytes() for each in weights)).hexdigest()
    return message, digest


def train_until_told(folder):
    """Trains as many epochs as the file "epochs" says, as soon as it is there. Returns a digest."""
    tf_byteps.init()
    epochs, last = 0, pathlib.Path(folder, "epochs")
    with tf_byteps.BytePSStrategy().scope():
        model = programs.made(programs.on_servers, "LazyAdam")
        while not last.exists() or epochs < int(last.read_text()):
            programs.fit(model, 1)
            epochs += 1
            pathlib.Path(folder, f"trained_{tf_byteps.rank()}").write_text(str(epochs))
            if not last.exists():
                time.sleep(_PAUSE_SECONDS)
        tables = model.get_layer("tables").get_embedding_tables()
    digest = hashlib.sha256(b"".join(each.tobytes() for each in tables.values())).hexdigest()
    return epochs, digest
