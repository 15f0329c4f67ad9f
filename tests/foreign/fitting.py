"""Programs that do more than `fit` around the training: teachers, callbacks, batches by hand."""

import keras
import tensorflow as tf
from keras import layers, ops

from tests.foreign.table import BATCH, OWN_ROWS, ROWS, integers, numbers, pictures, program, shown
from tests.user_arrays import aligned


class Distiller(keras.Model):
    """The older form: its own `compile`, `train_step` and `test_step`, and no `call`."""

    def __init__(self, student, teacher):
        super().__init__()
        self.teacher, self.student = teacher, student

    def compile(
        self, optimizer, metrics, student_loss_fn, distillation_loss_fn, alpha, temperature
    ):
        super().compile(optimizer=optimizer, metrics=metrics)
        self.student_loss_fn, self.distillation_loss_fn = student_loss_fn, distillation_loss_fn
        self.alpha, self.temperature = alpha, temperature

    def train_step(self, data):
        x, y = data
        taught = self.teacher(x, training=False)
        with tf.GradientTape() as tape:
            made = self.student(x, training=True)
            student_loss = self.student_loss_fn(y, made)
            soft = [tf.nn.softmax(logits / self.temperature, axis=1) for logits in (taught, made)]
            distillation_loss = self.distillation_loss_fn(*soft) * self.temperature**2
            loss = self.alpha * student_loss + (1 - self.alpha) * distillation_loss
        gradients = tape.gradient(loss, self.student.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.student.trainable_variables))
        self.compute_metrics(x, y, made)
        results = self.get_metrics_result()
        return {**results, "student_loss": student_loss, "distillation_loss": distillation_loss}

    def test_step(self, data):
        x, y = data
        made = self.student(x, training=False)
        self.compute_metrics(x, y, made)
        return {**self.get_metrics_result(), "student_loss": self.student_loss_fn(y, made)}


class NewDistiller(Distiller):
    """The newer form: `compute_loss` and `call`."""

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        taught = self.teacher(x, training=False)
        student_loss = self.student_loss_fn(y, y_pred)
        soft = [ops.softmax(logits / self.temperature, axis=1) for logits in (taught, y_pred)]
        distillation_loss = self.distillation_loss_fn(*soft) * self.temperature**2
        return self.alpha * student_loss + (1 - self.alpha) * distillation_loss

    def call(self, x):
        return self.student(x)

    train_step = keras.Model.train_step
    test_step = keras.Model.test_step


def _network(width):
    layer = [keras.Input([8, 8, 1]), layers.Conv2D(width, 3, strides=2), layers.LeakyReLU()]
    return keras.Sequential([*layer, layers.Flatten(), layers.Dense(4)])


def _distill(scope, distiller_class):
    keras.utils.set_random_seed(1)
    x, y = pictures(ROWS)
    with scope():
        teacher, student = _network(4), _network(2)
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        metrics = [keras.metrics.SparseCategoricalAccuracy()]
        teacher.compile(keras.optimizers.Adam(), loss, metrics=metrics)
    teacher.fit(x, y, batch_size=BATCH, epochs=2, verbose=0)
    with scope():
        distiller = distiller_class(student, teacher)
        distiller.compile(
            optimizer=keras.optimizers.Adam(),
            metrics=[keras.metrics.SparseCategoricalAccuracy()],
            student_loss_fn=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            distillation_loss_fn=keras.losses.KLDivergence(),
            alpha=0.1,
            temperature=10,
        )
    history = distiller.fit(x, y, batch_size=BATCH, epochs=2, verbose=0)
    scores = distiller.evaluate(x, y, batch_size=BATCH, verbose=0)
    return shown([student, teacher], history, scores=scores)


@program("distillation with its own `compile`, `train_step`, `test_step` and no `call`", quick=True)
def distiller(scope):
    return _distill(scope, Distiller)


@program("distillation with its own `compute_loss`")
def distiller_compute_loss(scope):
    return _distill(scope, NewDistiller)


def _dense():
    layer = [keras.Input([4]), layers.Dense(5, "tanh"), layers.Dense(1)]
    return keras.Sequential(layer)


class EvaluateEvery(keras.callbacks.Callback):
    """Evaluates after every second batch, and keeps the best weights."""

    def __init__(self, data):
        super().__init__()
        self.data, self.scores, self.best = data, [], None

    def on_train_batch_end(self, batch, logs=None):
        if batch % 2 == 0:
            self.scores.append(self.model.evaluate(*self.data, batch_size=BATCH, verbose=0))
            if self.scores[-1] == min(self.scores):
                self.best = self.model.get_weights()

    def on_train_end(self, logs=None):
        self.model.set_weights(self.best)


@program("a callback that evaluates within an epoch and keeps the best weights", quick=True)
def evaluating_callback(scope):
    keras.utils.set_random_seed(2)
    x, y = numbers(ROWS, 4), numbers(ROWS, 1, seed=1)
    with scope():
        model = _dense()
        model.compile(keras.optimizers.SGD(0.3), "mse")
    callback = EvaluateEvery((x[:17], y[:17]))
    history = model.fit(x, y, batch_size=BATCH, epochs=2, callbacks=[callback], verbose=0)
    return shown(model, history, scores=callback.scores)


class Confusion(keras.callbacks.Callback):
    """Predicts at the end of each epoch, and slows down when that does not help."""

    def __init__(self, x, y):
        super().__init__()
        self.x, self.y, self.hits = x, y, []

    def on_epoch_end(self, epoch, logs=None):
        guesses = self.model.predict(self.x, verbose=0).argmax(1)
        self.hits.append(int((guesses == self.y).sum()))
        if epoch and self.hits[-1] <= self.hits[-2]:
            self.model.optimizer.learning_rate = float(self.model.optimizer.learning_rate) / 2


@program("a callback that predicts after each epoch and sets the learning rate")
def predicting_callback(scope):
    keras.utils.set_random_seed(3)
    x, y = numbers(ROWS, 4), integers(3, ROWS)
    with scope():
        model = keras.Sequential([keras.Input([4]), layers.Dense(3, "softmax")])
        model.compile(keras.optimizers.SGD(0.5), "sparse_categorical_crossentropy")
    callback = Confusion(x, y)
    history = model.fit(x, y, batch_size=BATCH, epochs=4, callbacks=[callback], verbose=0)
    return shown(model, history, hits=callback.hits)


@program(
    "the same with `synchronized=True`",
    normalization={"synchronized": True},
    name="batch_normalization_synchronized",
)
@program("batch normalization", differs=OWN_ROWS, normalization={}, name="batch_normalization")
def _batch_normalization(scope, normalization):
    keras.utils.set_random_seed(4)
    x, y = numbers(ROWS, 4), numbers(ROWS, 1, seed=1)
    with scope():
        layer = [keras.Input([4]), layers.Dense(5), layers.BatchNormalization(**normalization)]
        model = keras.Sequential([*layer, layers.Dense(1)])
        model.compile(keras.optimizers.SGD(0.1), "mse")
    validation = (x[:17], y[:17])
    return shown(
        model, model.fit(x, y, batch_size=BATCH, epochs=2, validation_data=validation, verbose=0)
    )


@program(
    "a metric with numbers of its own in Python, eagerly",
    differs="numbers that are in no variable are each worker's; logs show their mean",
)
def python_metric(scope):
    class Best(keras.metrics.Metric):
        """The mean absolute error, summed up in NumPy; the model runs eagerly."""

        def __init__(self):
            super().__init__(name="best")
            self.reset_state()

        def update_state(self, y_true, y_pred, sample_weight=None):
            self.total += float(abs(y_true.numpy() - y_pred.numpy()).sum())
            self.rows += len(y_true)

        def result(self):
            return self.total / max(self.rows, 1)

        def reset_state(self):
            self.total, self.rows = 0.0, 0

    keras.utils.set_random_seed(5)
    x, y = numbers(ROWS, 4), numbers(ROWS, 1, seed=1)
    with scope():
        model = _dense()
        model.compile(keras.optimizers.SGD(0.1), "mse", metrics=[Best()], run_eagerly=True)
    return shown(model, model.fit(x, y, batch_size=BATCH, epochs=2, verbose=0))


@program("`train_on_batch` in a loop of one's own, `test_on_batch` and `evaluate` after it")
def batches_by_hand(scope):
    keras.utils.set_random_seed(6)
    x, y = numbers(ROWS, 4), numbers(ROWS, 1, seed=1)
    with scope():
        model = _dense()
        model.compile(keras.optimizers.SGD(0.1), "mse")
    for start in range(0, ROWS, BATCH):
        model.train_on_batch(x[start : start + BATCH], y[start : start + BATCH])
    return shown(model, score=model.evaluate(x, y, batch_size=BATCH, verbose=0))


class Batches(keras.utils.PyDataset):
    """Keras's documented form: slices of arrays, here in memory that TensorFlow takes as it is."""

    def __init__(self):
        super().__init__()
        # A row of 64 bytes, so that every slice begins at a multiple of them.
        self.x, self.y = aligned(numbers(ROWS, 8)), aligned(numbers(ROWS, 8, seed=1))

    def __len__(self):
        return -(-ROWS // BATCH)

    def __getitem__(self, index):
        rows = slice(index * BATCH, (index + 1) * BATCH)
        return self.x[rows], self.y[rows]


def _fed(scope, feed, **options):
    keras.utils.set_random_seed(5)
    batches = Batches()
    before = batches.x.copy(), batches.y.copy()
    with scope():
        model = keras.Sequential([keras.Input([8]), layers.Dense(8, "tanh"), layers.Dense(8)])
        model.compile(keras.optimizers.SGD(0.1), "mse")
    history = model.fit(feed(batches), epochs=2, verbose=0, **options)
    assert all((now == was).all() for now, was in zip((batches.x, batches.y), before))
    return shown(model, history)


def _for_ever(batches):
    while True:
        for index in range(len(batches)):
            yield batches[index]


@program("batches of a `PyDataset`", quick=True)
def py_dataset(scope):
    return _fed(scope, lambda batches: batches, shuffle=False)


@program("batches of a generator, `steps_per_epoch`", quick=True)
def generator(scope):
    return _fed(scope, _for_ever, steps_per_epoch=-(-ROWS // BATCH))
