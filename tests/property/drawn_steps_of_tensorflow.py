"""What the drawn steps do, as TensorFlow's users write it."""

import keras
import tensorflow as tf


class DrawnModel(keras.Model):
    def prepare(self):
        self.loss_object = keras.losses.MeanSquaredError()
        self.second = keras.optimizers.SGD(0.05, momentum=0.5)
        self.seen = tf.Variable(0, trainable=False)
        self.memory = [
            tf.Variable(tf.zeros_like(v), trainable=False) for v in self.trainable_variables
        ]

    def gradients(self, x, y):
        """The loss of a batch, and its gradients, processed."""
        variables = self.trainable_variables
        with tf.GradientTape() as tape:
            loss = LOSSES[self.step.loss](self, x, y)
        gradients = tape.gradient(loss, variables)
        for name in self.step.processing:
            gradients = PROCESSING[name](self, gradients, variables)
        return tf.reduce_mean(loss), gradients

    def train_step(self, data):
        x, y, _ = keras.utils.unpack_x_y_sample_weight(data)
        loss, gradients = self.gradients(x, y)
        self.seen.assign_add(1)
        UPDATES[self.step.update](self, gradients, x, y)
        return {"step_loss": loss}


LOSSES = {
    "mean": lambda model, x, y: tf.reduce_mean(tf.square(model(x) - y)),
    "object": lambda model, x, y: model.loss_object(y, model(x)),
    "vector": lambda model, x, y: tf.reduce_mean(tf.square(model(x) - y), axis=-1),
    "penalty": lambda model, x, y: (
        tf.reduce_mean(tf.abs(model(x) - y))
        + 0.01 * tf.add_n([tf.nn.l2_loss(v) for v in model.trainable_variables])
    ),
}


def _remember(model, gradients, variables):
    for kept, gradient in zip(model.memory, gradients):
        kept.assign(0.5 * kept + gradient)
    return [tf.identity(kept) for kept in model.memory]


def _normalize(model, gradients, variables):
    norm = tf.linalg.global_norm(gradients)
    return [gradient / (norm + 0.1) for gradient in gradients]


def _gate(model, gradients, variables):
    is_small = tf.reduce_all([tf.reduce_max(tf.abs(gradient)) < 5.0 for gradient in gradients])
    return [tf.where(is_small, gradient, 0.5 * gradient) for gradient in gradients]


def _project(model, gradients, variables):
    """Nothing along the weights."""
    return [
        gradient - tf.reduce_sum(gradient * v) * v / (tf.reduce_sum(v * v) + 0.1)
        for gradient, v in zip(gradients, variables)
    ]


PROCESSING = {
    "clip by global norm": lambda model, gradients, variables: tf.clip_by_global_norm(
        gradients, 0.5
    )[0],
    "clip each": lambda model, gradients, variables: [tf.clip_by_norm(g, 0.2) for g in gradients],
    "clip values": lambda model, gradients, variables: [
        tf.clip_by_value(g, -0.1, 0.1) for g in gradients
    ],
    "almost signs": lambda model, gradients, variables: [tf.tanh(5 * g) / 10 for g in gradients],
    "decay": lambda model, gradients, variables: [
        g + 0.01 * v for g, v in zip(gradients, variables)
    ],
    "noise": lambda model, gradients, variables: [
        g * (1 + 0.1 * tf.random.stateless_uniform(g.shape, [1, 2], dtype=g.dtype))
        for g in gradients
    ],
    "normalize": _normalize,
    "gate": _gate,
    "project": _project,
    "remember": _remember,
}


def _apply(model, gradients, x, y):
    model.optimizer.apply_gradients(zip(gradients, model.trainable_variables))


def _two_optimizers(model, gradients, x, y):
    variables = model.trainable_variables
    model.optimizer.apply(gradients[:2], variables[:2])
    model.second.apply_gradients(zip(gradients[2:], variables[2:]))


def _by_hand(model, gradients, x, y):
    for gradient, variable in zip(gradients, model.trainable_variables):
        variable.assign_sub(0.05 * gradient)


def _twice(model, gradients, x, y):
    _apply(model, gradients, x, y)
    _apply(model, model.gradients(x, y)[1], x, y)


def _up_and_down(model, gradients, x, y):
    steps = [0.05 * gradient for gradient in gradients]
    for variable, step in zip(model.trainable_variables, steps):
        variable.assign_add(step)
    _, gradients = model.gradients(x, y)
    for variable, step in zip(model.trainable_variables, steps):
        variable.assign_sub(step)
    _apply(model, gradients, x, y)


def _every_second(model, gradients, x, y):
    def update():
        _apply(model, gradients, x, y)
        return True

    tf.cond(tf.equal(model.seen % 2, 0), update, lambda: False)


UPDATES = {
    "apply": _apply,
    "two optimizers": _two_optimizers,
    "by hand": _by_hand,
    "twice": _twice,
    "up and down": _up_and_down,
    "every second": _every_second,
}


class ScaledDescent(keras.optimizers.SGD):
    def apply(self, grads, trainable_variables=None):
        super().apply([g / (1 + tf.norm(g)) for g in grads], trainable_variables)
