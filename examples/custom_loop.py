"""A training loop of one's own, with nothing from tf_byteps but `push_pull` and `broadcast`.

What it teaches:
* Each worker takes its share of the data by `shard`, and begins with worker 0's weights.
* `push_pull` averages a tensor over all workers. It begins as soon as its gradient is there.
* `priority` says what the next step needs first.

python examples/custom_loop.py                                    # one worker, no network
bpslaunch -np 2 --servers 1 python examples/custom_loop.py        # two workers and a server
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import tensorflow as tf
from sklearn.datasets import load_digits

import tf_byteps as bps

BATCH_SIZE = 64  # over all workers
STEPS = 300


def main():
    bps.init()
    images, labels = load_digits(return_X_y=True)
    # All workers shuffle alike; each takes every size-th sample. Repeating and dropping remainders
    # keeps the batches equally long: only then is the average of gradients that of the whole batch.
    dataset = (
        tf.data.Dataset.from_tensor_slices((images.astype("float32") / 16, labels))
        .shuffle(len(images), seed=1)
        .repeat()
        .shard(bps.size(), bps.rank())
        .batch(BATCH_SIZE // bps.size(), drop_remainder=True)
    )
    model = keras.Sequential(
        [keras.Input([64]), keras.layers.Dense(64, activation="relu"), keras.layers.Dense(10)]
    )
    optimizer = keras.optimizers.Adam(0.003)
    loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    # All workers begin with worker 0's weights.
    for variable in model.variables:
        variable.assign(bps.broadcast(variable.value, root_rank=0, name=variable.path))

    @tf.function
    def step(x, y):
        with tf.GradientTape() as tape:
            loss = loss_of(y, model(x, training=True))
        variables = model.trainable_variables
        gradients = tape.gradient(loss, variables)
        # Each exchange begins as soon as its gradient is there. Layers at the front go first,
        # because the next step needs them first.
        averages = [
            bps.push_pull(gradient, name=f"gradient/{variable.path}", priority=-index)
            for index, (gradient, variable) in enumerate(zip(gradients, variables, strict=True))
        ]
        optimizer.apply(averages, variables)
        return bps.push_pull(loss, name="loss")

    for number, (x, y) in enumerate(dataset.take(STEPS), start=1):
        loss = step(x, y)
        if number % 50 == 0 and bps.rank() == 0:
            print(f"step {number:3}  loss {loss:.4f}", flush=True)
    bps.shutdown()


if __name__ == "__main__":
    main()
