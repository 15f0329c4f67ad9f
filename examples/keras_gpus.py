"""Trains a small convolutional network in mixed precision, with a worker for each GPU.

What it teaches:
* bpslaunch gives each worker of a host a GPU of its own: `-np` is the number of GPUs.
* Mixed precision needs one line; all workers skip a step together if a gradient overflows.
* Keras compiles the step by XLA on a GPU, with the exchanges in it. Batches come from `tf.data`,
  which makes the next ones meanwhile, and are on the GPU before the step begins.

python examples/keras_gpus.py                                  # one GPU, or the CPU
bpslaunch -np 4 python examples/keras_gpus.py                  # four GPUs of this host
bpslaunch -np 8 -H host1:4,host2:4 python examples/keras_gpus.py
"""

import keras
import numpy as np
import tensorflow as tf

import tf_byteps as bps

ROWS, SIDE, CLASSES = 1024, 32, 10
BATCH_SIZE = 128  # over all workers

keras.mixed_precision.set_global_policy("mixed_float16")
random = np.random.default_rng(0)  # the same on all workers
labels = random.integers(0, CLASSES, ROWS)
images = random.normal(size=(ROWS, SIDE, SIDE, 3)) + labels[:, None, None, None] / CLASSES
dataset = tf.data.Dataset.from_tensor_slices((images.astype("float32"), labels))
# The seed gives all workers the same order, of which each trains on its part.
dataset = dataset.shuffle(ROWS, seed=0).batch(BATCH_SIZE).prefetch(tf.data.AUTOTUNE)

with bps.BytePSStrategy().scope():
    model = keras.Sequential(
        [
            keras.Input([SIDE, SIDE, 3]),
            keras.layers.Conv2D(16, 3, activation="relu"),
            keras.layers.MaxPooling2D(),
            keras.layers.Conv2D(32, 3, activation="relu"),
            keras.layers.GlobalAveragePooling2D(),
            keras.layers.Dense(CLASSES, dtype="float32"),  # softmax needs its 32 bits
        ]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.003), loss, metrics=["accuracy"])

if bps.rank() == 0:
    device = (tf.config.list_logical_devices("GPU") or tf.config.list_logical_devices("CPU"))[0]
    print(f"{bps.size()} workers, each on {device.device_type}", flush=True)
model.fit(dataset, epochs=2, verbose=2 if bps.rank() == 0 else 0)
