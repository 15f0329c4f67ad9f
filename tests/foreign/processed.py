"""Programs that do more with gradients than hand them to an optimizer of Keras's."""

import keras
import tensorflow as tf

from tests.foreign.steps import OwnStep, fit, made_up, small
from tests.foreign.table import BATCH, program, shown


class ClippedStep(OwnStep):
    """Clips as one is used to without Keras, and shows the norm."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.norm = keras.metrics.Mean(name="norm")

    @property
    def metrics(self):
        return [self.norm]

    def train_step(self, data):
        x, y, _ = keras.utils.unpack_x_y_sample_weight(data)
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(self(x, training=True) - y))
        gradients = tape.gradient(loss, self.trainable_variables)
        gradients, norm = tf.clip_by_global_norm(gradients, 0.1)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))
        self.norm.update_state(norm)
        return {"step_loss": loss, "norm": self.norm.result()}


class LoggedStep(OwnStep):
    """Hands gradients on as they are, but shows their norm as a number of the step."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.norm = keras.metrics.Mean(name="norm")

    @property
    def metrics(self):
        return [self.norm]

    def train_step(self, data):
        x, y, _ = keras.utils.unpack_x_y_sample_weight(data)
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(self(x, training=True) - y))
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))
        self.norm.update_state(tf.linalg.global_norm(gradients))
        return {"norm": self.norm.result()}


class SignStep(OwnStep):
    def train_step(self, data):
        x, y, _ = keras.utils.unpack_x_y_sample_weight(data)
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.abs(self(x, training=True) - y))
        gradients = [0.1 * tf.sign(g) for g in tape.gradient(loss, self.trainable_variables)]
        self.optimizer.apply(gradients, self.trainable_variables)
        return {"step_loss": loss}


class ByHandStep(OwnStep):
    """Updates without an optimizer."""

    def train_step(self, data):
        x, y, _ = keras.utils.unpack_x_y_sample_weight(data)
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(self(x, training=True) - y))
        for gradient, variable in zip(
            tape.gradient(loss, self.trainable_variables), self.trainable_variables
        ):
            variable.assign_sub(0.05 * gradient)
        return {"step_loss": loss}


class SharpnessAwareStep(OwnStep):
    """SAM: up along the gradient, and down with the gradient found there."""

    def _gradients(self, x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(self(x, training=True) - y))
        return loss, tape.gradient(loss, self.trainable_variables)

    def train_step(self, data):
        x, y, _ = keras.utils.unpack_x_y_sample_weight(data)
        loss, gradients = self._gradients(x, y)
        norm = tf.linalg.global_norm(gradients)
        steps = [0.05 * gradient / (norm + 1e-12) for gradient in gradients]
        for variable, step in zip(self.trainable_variables, steps):
            variable.assign_add(step)
        _, gradients = self._gradients(x, y)
        for variable, step in zip(self.trainable_variables, steps):
            variable.assign_sub(step)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))
        return {"step_loss": loss}


class SurgeryStep(OwnStep):
    """Two losses of the same weights; where their gradients conflict, one is projected (PCGrad)."""

    def train_step(self, data):
        x, y, _ = keras.utils.unpack_x_y_sample_weight(data)
        with tf.GradientTape(persistent=True) as tape:
            made = self(x, training=True)
            first = tf.reduce_mean(tf.square(made - y))
            second = tf.reduce_mean(tf.abs(made + y))
        variables = self.trainable_variables
        changed = []
        for one, other in zip(tape.gradient(first, variables), tape.gradient(second, variables)):
            product = tf.reduce_sum(one * other)
            along = tf.minimum(product, 0) / (tf.reduce_sum(other**2) + 1e-12)
            changed.append(one - along * other + other)
        self.optimizer.apply_gradients(zip(changed, variables))
        return {"step_loss": first}


class MetaStep(OwnStep):
    """Adapts by a step, and updates by the gradient of the loss after it (MAML)."""

    def train_step(self, data):
        x, y, _ = keras.utils.unpack_x_y_sample_weight(data)
        variables = self.trainable_variables
        with tf.GradientTape() as outer:
            with tf.GradientTape() as inner:
                loss = tf.reduce_mean(tf.square(self(x, training=True) - y))
            adapted = [
                variable - 0.1 * gradient
                for variable, gradient in zip(variables, inner.gradient(loss, variables))
            ]
            hidden = tf.tanh(x @ adapted[0] + adapted[1])
            after = tf.reduce_mean(tf.square(hidden @ adapted[2] + adapted[3] - y))
        self.optimizer.apply_gradients(zip(outer.gradient(after, variables), variables))
        return {"step_loss": after}


class GatedStep(OwnStep):
    """Leaves out the update where a gradient is not finite, as with zeros."""

    def train_step(self, data):
        x, y, _ = keras.utils.unpack_x_y_sample_weight(data)
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.math.log(tf.abs(self(x, training=True) - y)))
            loss += tf.reduce_mean(tf.sqrt(x[:, :1] + 2.5))  # not a number for one row
            loss *= tf.reduce_sum(self.trainable_variables[0] ** 2)
        gradients = tape.gradient(loss, self.trainable_variables)
        finite = tf.reduce_all([tf.reduce_all(tf.math.is_finite(g)) for g in gradients])
        gradients = [tf.where(finite, g, tf.zeros_like(g)) for g in gradients]
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))
        return {"skipped": 1.0 - tf.cast(finite, loss.dtype)}


class DividedStep(OwnStep):
    """The loss is a tensor, and its gradient is divided by the number of rows."""

    def train_step(self, data):
        x, y, _ = keras.utils.unpack_x_y_sample_weight(data)
        with tf.GradientTape() as tape:
            losses = tf.reduce_mean(tf.square(self(x, training=True) - y), axis=-1)
        gradients = tape.gradient(losses, self.trainable_variables)
        rows = tf.cast(tf.shape(losses)[0], losses.dtype)
        gradients = [gradient / rows for gradient in gradients]
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))
        return {"step_loss": tf.reduce_mean(losses)}


class ReducedStep(OwnStep):
    """Reduces gradients by itself before it clips them, as tf.distribute's users do."""

    def train_step(self, data):
        x, y, _ = keras.utils.unpack_x_y_sample_weight(data)
        context = tf.distribute.get_replica_context()
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(self(x, training=True) - y))
        gradients = tape.gradient(loss, self.trainable_variables)
        gradients = context.all_reduce(tf.distribute.ReduceOp.MEAN, gradients)
        gradients, _ = tf.clip_by_global_norm(gradients, 0.1)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))
        return {"step_loss": loss}


class NestedStep(OwnStep):
    """Gradients come out of a `tf.function` of the model's own."""

    @tf.function
    def gradients(self, x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(self(x, training=True) - y))
        return loss, tape.gradient(loss, self.trainable_variables)

    def train_step(self, data):
        x, y, _ = keras.utils.unpack_x_y_sample_weight(data)
        loss, gradients = self.gradients(x, y)
        gradients = [tf.clip_by_norm(gradient, 0.1) for gradient in gradients]
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))
        return {"step_loss": loss}


class SkippingStep(OwnStep):
    """Leaves out the update where the loss is not finite."""

    def train_step(self, data):
        x, y, _ = keras.utils.unpack_x_y_sample_weight(data)
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(self(x, training=True) - y))
            loss += tf.reduce_mean(tf.sqrt(x[:, :1] + 2.5))  # not a number for one row
        gradients = tape.gradient(loss, self.trainable_variables)

        def update():
            self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))
            return 0.0

        return {"skipped": tf.cond(tf.math.is_finite(loss), update, lambda: 1.0)}


class EverySecondStep(OwnStep):
    """Updates in every second step, by a counter of its own."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.seen = tf.Variable(0, trainable=False)

    def train_step(self, data):
        x, y, _ = keras.utils.unpack_x_y_sample_weight(data)
        self.seen.assign_add(1)
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(self(x, training=True) - y))
        gradients = tape.gradient(loss, self.trainable_variables)
        tf.cond(
            tf.equal(self.seen % 2, 0),
            lambda: self.optimizer.apply_gradients(zip(gradients, self.trainable_variables)),
            lambda: self.optimizer.iterations,
        )
        return {"step_loss": loss}


_STEPS = {
    "skipping": (SkippingStep, "that skips the update where the loss is not finite", {}),
    "skipping_compiled": (SkippingStep, "the same, compiled", {"jit_compile": True}),
    "every_second": (EverySecondStep, "that updates in every second step", {}),
    "reduced": (ReducedStep, "that reduces gradients itself, and clips them", {}),
    "reduced_eager": (ReducedStep, "the same, eagerly", {"run_eagerly": True}),
    "clipped": (ClippedStep, "that clips by the global norm and shows it", {}),
    "clipped_compiled": (ClippedStep, "the same, compiled", {"jit_compile": True}),
    "clipped_eager": (ClippedStep, "the same, eagerly", {"run_eagerly": True}),
    "logged": (LoggedStep, "that shows the norm of gradients", {}),
    "signs": (SignStep, "with signs of gradients", {}),
    "by_hand": (ByHandStep, "that updates without an optimizer", {}),
    "by_hand_compiled": (ByHandStep, "the same, compiled", {"jit_compile": True}),
    "sharpness_aware": (SharpnessAwareStep, "of sharpness-aware minimization", {}),
    "sharpness_aware_eager": (SharpnessAwareStep, "the same, eagerly", {"run_eagerly": True}),
    "surgery": (SurgeryStep, "that projects conflicting gradients (PCGrad)", {}),
    "surgery_compiled": (SurgeryStep, "the same, compiled", {"jit_compile": True}),
    "meta": (MetaStep, "of meta learning (MAML)", {}),
    "gated": (GatedStep, "with zeros where gradients are not finite", {}),
    "divided": (DividedStep, "that divides the gradient of a tensor by its rows", {}),
    "nested": (NestedStep, "whose gradients come out of a `tf.function`", {}),
}
_QUICK = (
    "skipping",
    "every_second",
    "reduced",
    "clipped",
    "logged",
    "by_hand",
    "sharpness_aware_eager",
    "surgery_compiled",
    "divided",
)


def _register(name, model_class, what, options):
    @program(f"own `train_step` {what}", name=f"processed_{name}", quick=name in _QUICK)
    def train(scope):
        return fit(scope, model_class, **options)


for _name, (_class, _what, _options) in _STEPS.items():
    _register(_name, _class, _what, _options)


class Centralized(keras.optimizers.SGD):
    """Gradient centralization with a scale by the norm: an `apply` of its own."""

    def apply(self, grads, trainable_variables=None):
        changed = []
        for gradient in grads:
            gradient -= tf.reduce_mean(gradient, axis=0, keepdims=True)
            changed.append(gradient * 2 / (1 + tf.norm(gradient)))
        super().apply(changed, trainable_variables)


@program("an optimizer with an `apply` of its own", quick=True)
def centralized(scope):
    return fit(scope, loss="mse", optimizer=Centralized(0.1, momentum=0.9))


@program("the same with gradient accumulation")
def centralized_accumulating(scope):
    optimizer = Centralized(0.1, gradient_accumulation_steps=2)
    return fit(scope, loss="mse", optimizer=optimizer)


@program("the same in a `LossScaleOptimizer`, with gradient accumulation")
def centralized_loss_scale(scope):
    inner = Centralized(0.1, gradient_accumulation_steps=2)
    return fit(scope, loss="mse", optimizer=keras.optimizers.LossScaleOptimizer(inner))


@program("own `train_step` with clipping, Adam with weight decay and EMA")
def processed_adam(scope):
    optimizer = keras.optimizers.AdamW(0.01, use_ema=True)
    return fit(scope, ClippedStep, optimizer=optimizer)


@program("own `train_step` with clipping, and gradient accumulation")
def processed_accumulating(scope):
    optimizer = keras.optimizers.SGD(0.1, gradient_accumulation_steps=2)
    return fit(scope, ClippedStep, optimizer=optimizer)


# Loops in the scope without `strategy.run`.


def _loop(scope, as_function, train):
    keras.utils.set_random_seed(1)
    x, y = made_up()
    with scope():
        model, optimizer = small(), keras.optimizers.Adam(0.01)
        loss_fn = keras.losses.MeanSquaredError()

        def step(x, y):
            with tf.GradientTape() as tape:
                loss = loss_fn(y, model(x, training=True))
            gradients = tape.gradient(loss, model.trainable_weights)
            train(optimizer, gradients, model.trainable_weights)
            return loss

        step = tf.function(step) if as_function else step
        losses = []
        for _ in range(2):
            for rows in tf.data.Dataset.from_tensor_slices((x, y)).batch(BATCH):
                losses.append(float(step(*rows)))
    return shown(model, losses=losses)


def _apply(optimizer, gradients, variables):
    optimizer.apply_gradients(zip(gradients, variables))


def _clip(optimizer, gradients, variables):
    optimizer.apply(tf.clip_by_global_norm(gradients, 0.1)[0], variables)


def _by_hand(optimizer, gradients, variables):
    for gradient, variable in zip(gradients, variables):
        variable.assign_sub(0.1 * gradient)


@program("training loop from scratch in the scope, eagerly", quick=True)
def scratch_loop(scope):
    return _loop(scope, False, _apply)


@program("the same, its step a `tf.function`")
def scratch_loop_function(scope):
    return _loop(scope, True, _apply)


@program("the same with clipping by the global norm")
def scratch_loop_clipped(scope):
    return _loop(scope, True, _clip)


@program("the same without an optimizer")
def scratch_loop_by_hand(scope):
    return _loop(scope, False, _by_hand)
