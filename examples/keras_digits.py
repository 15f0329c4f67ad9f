"""Trains a Keras model on scikit-learn's images of digits, on any number of workers.

What it teaches:
* The model is made and compiled in the scope of a strategy. Nothing else of a program changes.
* Workers draw the same split of the data, so that each can train on its part of every batch.
* Metrics cover the rows of all workers. Worker 0 alone prints.

python examples/keras_digits.py                                # one worker, no network
bpslaunch -np 2 --servers 1 python examples/keras_digits.py    # two workers and a server
"""

import keras
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import tf_byteps as bps

keras.utils.set_random_seed(1)  # the same on all workers
images, labels = load_digits(return_X_y=True)
x, test_x, y, test_y = train_test_split(images / 16, labels, test_size=0.2, random_state=1)

strategy = bps.BytePSStrategy()
with strategy.scope():
    model = keras.Sequential(
        [
            keras.layers.Dense(128, activation="relu"),
            keras.layers.Dense(64, activation="relu"),
            keras.layers.Dense(10, activation="softmax"),
        ]
    )
    optimizer = keras.optimizers.SGD(0.05, momentum=0.9)
    model.compile(optimizer, "sparse_categorical_crossentropy", metrics=["accuracy"])

model.fit(x, y, batch_size=64, epochs=20, verbose=0)  # 64 rows over all workers
loss, accuracy = model.evaluate(test_x, test_y, batch_size=64, verbose=0)
if bps.rank() == 0:
    print(f"test accuracy {accuracy:.4f}, test loss {loss:.4f}")
