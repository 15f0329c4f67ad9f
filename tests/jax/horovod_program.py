"""A program as users of Horovod have it, which test_keras_without_a_strategy.py runs on tf_byteps.

Nothing is adapted but the import, for which the test puts another one.
"""

import sys

import horovod.keras as hvd
import keras
import numpy as np

hvd.init()
folder = sys.argv[1]

# Digits of 8 x 8 points, each a noisy copy of one of ten patterns.
patterns = np.random.default_rng(0).normal(size=(10, 8, 8, 1))
rng = np.random.default_rng(1 + hvd.rank())  # each worker has rows of its own
labels = rng.integers(0, 10, 320)
images = (patterns[labels] + rng.normal(scale=0.5, size=(320, 8, 8, 1))).astype("float32")

keras.utils.set_random_seed(hvd.rank())
model = keras.Sequential(
    [
        keras.Input((8, 8, 1)),
        keras.layers.Conv2D(8, 3, activation="relu"),
        keras.layers.MaxPooling2D(),
        keras.layers.Flatten(),
        keras.layers.Dropout(0.1),
        keras.layers.Dense(10, activation="softmax"),
    ]
)
rate = 0.01 * hvd.size()
optimizer = hvd.DistributedOptimizer(keras.optimizers.Adam(rate), compression=hvd.Compression.fp16)
model.compile(optimizer, "sparse_categorical_crossentropy", metrics=["accuracy"])

callbacks = [
    hvd.callbacks.BroadcastGlobalVariablesCallback(0),
    hvd.callbacks.MetricAverageCallback(),
    hvd.callbacks.LearningRateWarmupCallback(initial_lr=rate, warmup_epochs=2, verbose=1),
    keras.callbacks.ReduceLROnPlateau("loss", patience=3, verbose=1),
]
if hvd.rank() == 0:
    callbacks.append(keras.callbacks.ModelCheckpoint(f"{folder}/best.keras"))

model.fit(
    images,
    labels,
    batch_size=32,
    epochs=4,
    callbacks=callbacks,
    validation_data=(images[:64], labels[:64]),
    verbose=2 if hvd.rank() == 0 else 0,
)
loss, accuracy = model.evaluate(images, labels, verbose=0)
accuracy = hvd.allreduce(accuracy, name="accuracy")
same = hvd.allgather_object([weight.tobytes() for weight in model.get_weights()])
print(f"worker {hvd.rank()}: accuracy {accuracy:.3f}, {same.count(same[0])} have these weights")

if hvd.rank() == 0:
    again = hvd.load_model(f"{folder}/best.keras")
    print(f"loaded after {int(again.optimizer.iterations)} steps")
