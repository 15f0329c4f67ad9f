"""Trainings drawn at random: a model, an optimizer, a loss, and how its batches are cut."""

import dataclasses
import random

import keras
import numpy as np

from tests.property.models import LENGTH, MODELS, STEPS

_REPEATING = ("embedding", "masked")  # models that look up a word several times


@dataclasses.dataclass(frozen=True)
class Case:
    """A training. Each attribute is drawn by itself, among what goes together."""

    seed: int
    dtype: str
    model: str
    step: str
    loss: str
    optimizer: str
    weights: str
    batch: int
    rows: int
    accumulation: int | None
    clipping: str
    loss_scale: str
    shuffle: bool
    steps_per_execution: int

    @property
    def tolerance(self):
        """Of weights and losses, relative or absolute: sums are rounded in another order."""
        return {"float64": 1e-9, "float32": 1e-5, "mixed_bfloat16": 2e-2}[self.dtype]

    @property
    def strategy(self):
        """Options of `BytePSStrategy`, for numbers that Keras computes from each occurrence.

        On JAX it computes none: gradients of embeddings are dense.
        """
        if keras.backend.backend() == "jax":
            return {}
        is_linear = self.optimizer in _LINEAR and self.clipping == "none"
        repeats = self.model in _REPEATING
        return {"merge_repeated_rows": False} if repeats and not is_linear else {}


def draw(seed):
    """The case of a seed."""
    choose = random.Random(seed)
    model = choose.choice(list(MODELS))
    plain, repeats = model in ("masked", "two_outputs"), model in _REPEATING
    step = "fit" if plain else choose.choice(["fit", "fit", *STEPS])
    losses = ["mse", "object", "sum", "mean_with_sample_weight"]
    loss = choose.choice(losses if plain else [*losses, "scalar", "scalar", "huber"])
    batch = choose.choice([4, 5, 6, 8, 9])
    case = Case(
        seed=seed,
        dtype=choose.choice(["float64", "float64", "float32", "float32", "mixed_bfloat16"]),
        model=model,
        step=step,
        loss=loss,
        optimizer=choose.choice(list(_OPTIMIZERS)),
        weights=choose.choice(["none", "none", "some", "with zeros"]) if step == "fit" else "none",
        batch=batch,
        # Often one row is left, for which there are too many workers.
        rows=2 * batch + choose.choice([0, 1, 1, 1, 2, choose.randrange(batch)]),
        accumulation=choose.choice([None, None, 2, 3]),
        clipping=choose.choice(["none", "none", "clipnorm", "global_clipnorm", "clipvalue"]),
        # Keras cannot unscale an embedding's gradient by a static scale.
        loss_scale=choose.choice(["none", "none", "dynamic", "dynamic" if repeats else "static"]),
        shuffle=choose.choice([True, False]),
        steps_per_execution=choose.choice([1, 1, 1, 2]),
    )
    if (model, step, case.dtype) == ("penalties", "fit", "mixed_bfloat16"):
        # Keras cannot add up losses of different types.
        return dataclasses.replace(case, dtype="float32")
    return case


def train(case, scope):
    """Trains as the case says.

    Args:
        case: a `Case`.
        scope: makes the context in which the model is made and compiled.

    Returns:
        {name: list of numbers}: losses and weights.
    """
    keras.config.set_floatx("float64" if case.dtype == "float64" else "float32")
    keras.config.set_dtype_policy(case.dtype)
    try:
        keras.utils.set_random_seed(case.seed)
        with scope():
            model, data = MODELS[case.model](STEPS.get(case.step, keras.Model), case.rows)
            options = {"steps_per_execution": case.steps_per_execution}
            model.compile(_optimizer(case), _loss(case), **options)
        options = {"batch_size": case.batch, "epochs": 2, "shuffle": case.shuffle, "verbose": 0}
        logs = model.fit(*data, sample_weight=_sample_weights(case), **options).history
    finally:
        keras.config.set_dtype_policy("float32")
    results = {f"log {key}": values for key, values in logs.items()}
    for index, weights in enumerate(model.get_weights()):
        results[f"weights {index}"] = weights
    return {key: np.asarray(value, "float64").tolist() for key, value in results.items()}


# Nothing divides by almost nothing, where rounding would be all that is left of a gradient.
_EPSILON = 1e-3
_OPTIMIZERS = {
    "sgd": lambda **options: keras.optimizers.SGD(0.03, **options),
    "momentum": lambda **options: keras.optimizers.SGD(0.03, momentum=0.8, **options),
    "nesterov": lambda **options: keras.optimizers.SGD(
        0.03, momentum=0.8, nesterov=True, weight_decay=0.01, **options
    ),
    "averaging": lambda **options: keras.optimizers.SGD(
        0.03, use_ema=True, ema_momentum=0.8, ema_overwrite_frequency=2, **options
    ),
    "schedule": lambda **options: keras.optimizers.SGD(
        keras.optimizers.schedules.ExponentialDecay(0.05, 2, 0.5), **options
    ),
    "adam": lambda **options: keras.optimizers.Adam(0.02, epsilon=_EPSILON, **options),
    "amsgrad": lambda **options: keras.optimizers.AdamW(
        0.02, epsilon=_EPSILON, amsgrad=True, weight_decay=0.01, **options
    ),
    "rmsprop": lambda **options: keras.optimizers.RMSprop(
        0.01, epsilon=_EPSILON, momentum=0.5, centered=True, **options
    ),
    "adagrad": lambda **options: keras.optimizers.Adagrad(0.05, **options),
    "nadam": lambda **options: keras.optimizers.Nadam(0.02, epsilon=_EPSILON, **options),
}
_LINEAR = ("sgd", "momentum", "nesterov", "averaging", "schedule")
_CLIPPING = {
    "none": {},
    "clipnorm": {"clipnorm": 0.3},
    "global_clipnorm": {"global_clipnorm": 0.3},
    "clipvalue": {"clipvalue": 0.1},
}


def _optimizer(case):
    options = {**_CLIPPING[case.clipping], "gradient_accumulation_steps": case.accumulation}
    if case.loss_scale == "static":
        options["loss_scale_factor"] = 64.0
    optimizer = _OPTIMIZERS[case.optimizer](**options)
    if case.loss_scale == "dynamic":
        return keras.optimizers.LossScaleOptimizer(optimizer, initial_scale=256.0)
    return optimizer


def _loss(case):
    return {
        "mse": "mse",
        "object": keras.losses.MeanAbsoluteError(),
        "huber": keras.losses.Huber(0.5),
        "sum": keras.losses.MeanSquaredError(reduction="sum"),
        "mean_with_sample_weight": keras.losses.MeanSquaredError(
            reduction="mean_with_sample_weight"
        ),
        "scalar": lambda y, made: keras.ops.mean(keras.ops.square(y - made)),
    }[case.loss]


def _sample_weights(case):
    if case.weights == "none":
        return None
    weights = np.linspace(0.2, 2.0, case.rows)
    if case.weights == "with zeros":
        weights[::3] = 0.0
    if case.model == "masked":  # a weight for each word: Keras wants the mask's shape
        weights = weights[:, None] * np.ones(LENGTH)
    return weights.astype(keras.config.floatx())
