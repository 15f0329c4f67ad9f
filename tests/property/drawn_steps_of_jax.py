"""What the drawn steps do, as JAX's users write it."""

import jax
import jax.numpy as jnp
import keras


class DrawnModel(keras.Model):
    def prepare(self):
        self.loss_object = keras.losses.MeanSquaredError()
        # JAX's state of a step has no place for the slots of a second optimizer.
        self.second = keras.optimizers.SGD(0.05)
        self.second.build(self.trainable_variables[2:])
        zeros = {"initializer": "zeros", "trainable": False}
        with keras.name_scope("drawn"):
            self.seen = self.add_weight(shape=(), dtype="int32", **zeros)
            self.memory = [self.add_weight(shape=v.shape, **zeros) for v in self.trainable_weights]
        for kept in self.memory:
            kept.byteps_kind = "synchronized"  # otherwise it is a statistic of a worker's rows

    def compile(self, optimizer, **options):
        if self.step.update == "two optimizers":
            optimizer.build(self.trainable_variables[:2])
        super().compile(optimizer, **options)

    def train_step(self, state, data):
        trainable, non_trainable, optimizer, of_metrics = state
        x, y, _ = keras.utils.unpack_x_y_sample_weight(data)
        values = Values(self, list(trainable), list(non_trainable), optimizer)
        loss, gradients = values.gradients(x, y)
        values.assign(self.seen, values.of(self.seen) + 1)
        UPDATES[self.step.update](values, gradients, x, y)
        after = (values.trainable, values.non_trainable, values.optimizer, of_metrics)
        return {"step_loss": loss}, after


class Values:
    """The state of a step, which goes on to the next one."""

    def __init__(self, model, trainable, non_trainable, optimizer):
        self.model, self.optimizer = model, optimizer
        self.trainable, self.non_trainable = trainable, non_trainable
        self._places = {id(v): i for i, v in enumerate(model.non_trainable_variables)}

    def of(self, variable):
        return self.non_trainable[self._places[id(variable)]]

    def assign(self, variable, value):
        self.non_trainable[self._places[id(variable)]] = value

    def gradients(self, x, y):
        """The loss of a batch, and its gradients, processed."""
        step = self.model.step

        def loss_of(trainable):
            made, _ = self.model.stateless_call(trainable, self.non_trainable, x)
            return LOSSES[step.loss](self.model, trainable, made, y)

        loss, gradients = jax.value_and_grad(loss_of)(self.trainable)
        for name in step.processing:
            gradients = PROCESSING[name](self, gradients, self.trainable)
        return loss, gradients

    def apply(self, gradients):
        self.trainable, self.optimizer = self.model.optimizer.stateless_apply(
            self.optimizer, gradients, self.trainable
        )


LOSSES = {
    "mean": lambda model, weights, made, y: jnp.mean(jnp.square(made - y)),
    "object": lambda model, weights, made, y: model.loss_object(y, made),
    # JAX derives numbers only: a sum over rows would be the mean of the workers' sums.
    "vector": lambda model, weights, made, y: jnp.mean(jnp.mean(jnp.square(made - y), axis=-1)),
    "penalty": lambda model, weights, made, y: (
        jnp.mean(jnp.abs(made - y)) + 0.005 * sum(jnp.sum(jnp.square(v)) for v in weights)
    ),
}


def _norm(gradients):
    return jnp.sqrt(sum(jnp.sum(jnp.square(gradient)) for gradient in gradients))


def _shortened(gradient, norm, limit):
    return gradient * limit / jnp.maximum(norm, limit)


def _clip_by_global_norm(values, gradients, variables):
    norm = _norm(gradients)
    return [_shortened(gradient, norm, 0.5) for gradient in gradients]


def _noise(values, gradients, variables):
    key = jax.random.key(12)
    return [g * (1 + 0.1 * jax.random.uniform(key, g.shape, g.dtype)) for g in gradients]


def _remember(values, gradients, variables):
    memory = values.model.memory
    for kept, gradient in zip(memory, gradients):
        values.assign(kept, 0.5 * values.of(kept) + gradient)
    return [values.of(kept) for kept in memory]


def _normalize(values, gradients, variables):
    norm = _norm(gradients)
    return [gradient / (norm + 0.1) for gradient in gradients]


def _gate(values, gradients, variables):
    is_small = jnp.all(jnp.stack([jnp.max(jnp.abs(gradient)) < 5.0 for gradient in gradients]))
    return [jnp.where(is_small, gradient, 0.5 * gradient) for gradient in gradients]


def _project(values, gradients, variables):
    """Nothing along the weights."""
    return [
        gradient - jnp.sum(gradient * v) * v / (jnp.sum(v * v) + 0.1)
        for gradient, v in zip(gradients, variables)
    ]


PROCESSING = {
    "clip by global norm": _clip_by_global_norm,
    "clip each": lambda values, gradients, variables: [
        _shortened(g, _norm([g]), 0.2) for g in gradients
    ],
    "clip values": lambda values, gradients, variables: [jnp.clip(g, -0.1, 0.1) for g in gradients],
    "almost signs": lambda values, gradients, variables: [jnp.tanh(5 * g) / 10 for g in gradients],
    "decay": lambda values, gradients, variables: [
        g + 0.01 * v for g, v in zip(gradients, variables)
    ],
    "noise": _noise,
    "normalize": _normalize,
    "gate": _gate,
    "project": _project,
    "remember": _remember,
}


def _apply(values, gradients, x, y):
    values.apply(gradients)


def _two_optimizers(values, gradients, x, y):
    second = values.model.second
    first, values.optimizer = values.model.optimizer.stateless_apply(
        values.optimizer, gradients[:2], values.trainable[:2]
    )
    others, _ = second.stateless_apply(
        [variable.value for variable in second.variables], gradients[2:], values.trainable[2:]
    )
    values.trainable = [*first, *others]


def _by_hand(values, gradients, x, y):
    values.trainable = [v - 0.05 * g for v, g in zip(values.trainable, gradients)]


def _twice(values, gradients, x, y):
    values.apply(gradients)
    values.apply(values.gradients(x, y)[1])


def _up_and_down(values, gradients, x, y):
    steps = [0.05 * gradient for gradient in gradients]
    values.trainable = [v + step for v, step in zip(values.trainable, steps)]
    _, gradients = values.gradients(x, y)
    values.trainable = [v - step for v, step in zip(values.trainable, steps)]
    values.apply(gradients)


def _every_second(values, gradients, x, y):
    state = list(values.trainable), list(values.optimizer)

    def update(trainable, optimizer):
        trainable, optimizer = values.model.optimizer.stateless_apply(
            optimizer, gradients, trainable
        )
        return list(trainable), list(optimizer)

    is_second = values.of(values.model.seen) % 2 == 0
    values.trainable, values.optimizer = jax.lax.cond(is_second, update, lambda *old: old, *state)


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
        super().apply([g / (1 + _norm([g])) for g in grads], trainable_variables)
