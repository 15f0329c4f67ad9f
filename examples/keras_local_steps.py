"""Trains a model of characters over a slow network: workers meet every 16 steps, not in each.

What it teaches:
* `local_steps` and `outer` of the strategy: the rest of the program is an ordinary `fit`.
* The validation loss is that of the weights that all workers have, at the end of each epoch.
* The last line of bpslaunch says how many bytes were sent. Compare `--local_steps 0`.

bpslaunch -np 2 --servers 1 python examples/keras_local_steps.py
bpslaunch -np 2 --servers 1 python examples/keras_local_steps.py --local_steps 0
"""

import pathlib
import sys

import keras
import numpy as np
from absl import flags

import tf_byteps as bps

LOCAL_STEPS = flags.DEFINE_integer("local_steps", 16, "steps between rounds; 0: synchronous")
OUTER = flags.DEFINE_enum("outer", "diloco", ["average", "diloco"], "the outer optimizer")
STEPS = flags.DEFINE_integer("steps", 96, "steps of an epoch")
EPOCHS = flags.DEFINE_integer("epochs", 3, "epochs")
flags.FLAGS(sys.argv)

WINDOW, BATCH, LETTERS = 32, 64, 128

# Sources of Keras: there is nothing to download.
library = pathlib.Path(keras.__file__).parent / "src" / "layers"
text = b"".join(path.read_bytes() for path in sorted(library.rglob("*.py")))
letters = np.minimum(np.frombuffer(text, np.uint8), LETTERS - 1).astype(np.int32)
random = np.random.default_rng(0)  # the same on all workers


def draw(count):
    """Windows of the text, and the letters that come next."""
    begins = random.integers(0, len(letters) - WINDOW - 1, count)
    windows = letters[begins[:, np.newaxis] + np.arange(WINDOW + 1)]
    return windows[:, :-1], windows[:, 1:]


x, y = draw(STEPS.value * BATCH)
test_x, test_y = draw(4 * BATCH)
keras.utils.set_random_seed(1)
rounds = {"local_steps": LOCAL_STEPS.value, "outer": OUTER.value} if LOCAL_STEPS.value else {}
with bps.BytePSStrategy(**rounds).scope():
    model = keras.Sequential(
        [
            keras.layers.Embedding(LETTERS, 64),
            keras.layers.Conv1D(128, 8, padding="causal", activation="relu"),
            keras.layers.Conv1D(128, 8, padding="causal", activation="relu"),
            keras.layers.Dense(LETTERS, activation="softmax"),
        ]
    )
    model.compile(keras.optimizers.Adam(3e-3), "sparse_categorical_crossentropy")

history = model.fit(
    x,
    y,
    batch_size=BATCH,
    epochs=EPOCHS.value,
    validation_data=(test_x, test_y),
    verbose=2 if bps.rank() == 0 else 0,
)
if bps.rank() == 0:
    print(f"validation loss {history.history['val_loss'][-1]:.3f}")
