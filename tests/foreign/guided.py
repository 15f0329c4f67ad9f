"""Programs as tf.distribute's guide has them: losses are divided by the global batch's size."""

import keras
import tensorflow as tf

from tests.foreign.steps import OwnStep, fit, made_up, small
from tests.foreign.table import BATCH, ROWS, program, shown


class GuidedMeanStep(OwnStep):
    def loss_of(self, x, y, weights):
        replicas = tf.distribute.get_strategy().num_replicas_in_sync
        return tf.reduce_mean(tf.square(self(x, training=True) - y)) / replicas


class GuidedStep(OwnStep):
    def loss_of(self, x, y, weights):
        losses = tf.reduce_mean(tf.square(self(x, training=True) - y), axis=-1)
        return tf.nn.compute_average_loss(losses, global_batch_size=BATCH)


class GuidedRegularizedStep(GuidedStep):
    def loss_of(self, x, y, weights):
        penalty = 0.01 * tf.add_n([tf.nn.l2_loss(v) for v in self.trainable_variables])
        return super().loss_of(x, y, weights) + tf.nn.scale_regularization_loss(penalty)


def _weights_only(results):
    return {key: value for key, value in results.items() if key.startswith("weights")}


@program("own `train_step` that divides by `num_replicas_in_sync`; weights")
def guided_mean_step(scope):
    return _weights_only(fit(scope, GuidedMeanStep, rows=ROWS - ROWS % BATCH))


@program("own `train_step` with `compute_average_loss`; weights")
def guided_step(scope):
    return _weights_only(fit(scope, GuidedStep))


@program("the same with `scale_regularization_loss`")
def guided_regularized_step(scope):
    return _weights_only(fit(scope, GuidedRegularizedStep))


@program("custom loop by the guide: `strategy.run`, `compute_average_loss`, `reduce`", quick=True)
def guided_loop(scope):
    keras.utils.set_random_seed(5)
    with scope():
        strategy = tf.distribute.get_strategy()
        model, optimizer = small(), keras.optimizers.SGD(0.1)
        dataset = tf.data.Dataset.from_tensor_slices(made_up()).batch(BATCH)
        dataset = strategy.experimental_distribute_dataset(dataset)

        def step(rows):
            x, y = rows
            with tf.GradientTape() as tape:
                losses = tf.reduce_mean(tf.square(model(x, training=True) - y), axis=-1)
                loss = tf.nn.compute_average_loss(losses, global_batch_size=BATCH)
            gradients = tape.gradient(loss, model.trainable_variables)
            optimizer.apply_gradients(zip(gradients, model.trainable_variables))
            return loss

        @tf.function
        def distributed_step(rows):
            return strategy.reduce("SUM", strategy.run(step, args=(rows,)), axis=None)

        losses = [[float(distributed_step(rows)) for rows in dataset] for _ in range(2)]
    return shown(model, losses=losses)


@program("a custom loop whose epoch is one `tf.function` over the distributed dataset")
def guided_epoch(scope):
    keras.utils.set_random_seed(6)
    with scope():
        strategy = tf.distribute.get_strategy()
        model, optimizer = small(), keras.optimizers.SGD(0.1)
        seen = keras.metrics.Mean()
        dataset = tf.data.Dataset.from_tensor_slices(made_up()).batch(BATCH, drop_remainder=True)
        dataset = strategy.experimental_distribute_dataset(dataset)

        def step(rows):
            x, y = rows
            with tf.GradientTape() as tape:
                losses = tf.reduce_mean(tf.square(model(x, training=True) - y), axis=-1)
                loss = tf.nn.compute_average_loss(losses, global_batch_size=BATCH)
            gradients = tape.gradient(loss, model.trainable_variables)
            optimizer.apply_gradients(zip(gradients, model.trainable_variables))
            seen.update_state(loss)

        @tf.function
        def epoch():
            for rows in dataset:
                strategy.run(step, args=(rows,))

        for _ in range(2):
            epoch()
    return shown(model)
