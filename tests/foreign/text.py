"""Programs about text and other sequences."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

from tests.foreign.table import BATCH, REPEATED, ROWS, integers, numbers, program, shown

_WORDS, _LENGTH = 11, 6


def _sentences(rows=ROWS, seed=0):
    """Sentences of different lengths, which zeros fill up."""
    words = integers(_WORDS - 1, rows, _LENGTH, seed=seed) + 1
    lengths = integers(_LENGTH - 1, rows, 1, seed=seed + 1) + 2
    return np.where(np.arange(_LENGTH) < lengths, words, 0).astype("int32")


class TransformerBlock(layers.Layer):
    def __init__(self, width, heads):
        super().__init__()
        self.attention = layers.MultiHeadAttention(heads, width)
        self.dense = keras.Sequential([layers.Dense(8, "relu"), layers.Dense(width)])
        self.first, self.second = layers.LayerNormalization(), layers.LayerNormalization()

    def call(self, inputs):
        x = self.first(inputs + self.attention(inputs, inputs))
        return self.second(x + self.dense(x))


class TokenAndPosition(layers.Layer):
    def __init__(self, words, length, width):
        super().__init__()
        self.tokens = layers.Embedding(words, width)
        self.positions = layers.Embedding(length, width)

    def call(self, x):
        return self.tokens(x) + self.positions(ops.arange(ops.shape(x)[-1]))


def _text_transformer(scope, optimizer):
    keras.utils.set_random_seed(1)
    x = _sentences()
    y = (x.sum(1) % 2).astype("int32")
    with scope():
        words = keras.Input([_LENGTH], dtype="int32")
        tokens = TransformerBlock(4, 2)(TokenAndPosition(_WORDS, _LENGTH, 4)(words))
        pooled = layers.Dropout(0.0)(layers.GlobalAveragePooling1D()(tokens))
        model = keras.Model(words, layers.Dense(2, "softmax")(pooled))
        model.compile(optimizer(), "sparse_categorical_crossentropy", metrics=["accuracy"])
    history = model.fit(
        x, y, batch_size=BATCH, epochs=2, validation_data=(x[:13], y[:13]), verbose=0
    )
    return shown(model, history)


@program("text transformer, SGD", quick=True)
def text_transformer_sgd(scope):
    return _text_transformer(scope, lambda: keras.optimizers.SGD(0.1))


@program(
    "the same with `merge_repeated_rows=False`",
    differs="each worker looks up the positions, which one process does once for all rows",
    strategy={"merge_repeated_rows": False},
    name="text_transformer_adam_unmerged",
)
@program("text transformer, Adam", differs=REPEATED, name="text_transformer_adam")
def _text_transformer_adam(scope):
    return _text_transformer(scope, lambda: keras.optimizers.Adam(0.01))


@program("text classification: `TextVectorization` in `map`, bidirectional LSTM, masks")
def text_lstm(scope):
    keras.utils.set_random_seed(2)
    names = np.array([f"w{index}" for index in range(_WORDS)])
    texts = [" ".join(names[row[row > 0]]) for row in _sentences()]
    labels = integers(2, ROWS)
    dataset = tf.data.Dataset.from_tensor_slices((texts, labels)).shuffle(100).batch(BATCH)
    vectorize = layers.TextVectorization(max_tokens=20, output_sequence_length=_LENGTH)
    vectorize.adapt(dataset.map(lambda text, label: text))
    with scope():
        model = keras.Sequential(
            [
                keras.Input([_LENGTH], dtype="int64"),
                layers.Embedding(20, 4, mask_zero=True),
                layers.Bidirectional(layers.LSTM(3)),
                layers.Dense(1, "sigmoid"),
            ]
        )
        model.compile(keras.optimizers.SGD(0.1), "binary_crossentropy", metrics=["accuracy"])
    dataset = dataset.map(lambda text, label: (vectorize(text), label)).cache().prefetch(2)
    return shown(model, model.fit(dataset, epochs=2, verbose=0))


def _seq2seq(scope, **compile_options):
    keras.utils.set_random_seed(3)
    source, target = _sentences(), _sentences(seed=2)
    with scope():
        read, written = keras.Input([None], dtype="int32"), keras.Input([None], dtype="int32")
        embedded = layers.Embedding(_WORDS, 4, mask_zero=True)(read)
        _, *state = layers.LSTM(4, return_state=True)(embedded)
        embedded = layers.Embedding(_WORDS, 4, mask_zero=True)(written)
        decoded = layers.LSTM(4, return_sequences=True)(embedded, initial_state=state)
        model = keras.Model([read, written], layers.Dense(_WORDS, "softmax")(decoded))
        model.compile(**compile_options)
    following = np.roll(target, -1, axis=1)
    following[:, -1] = 0
    history = model.fit([source, target], following, batch_size=BATCH, epochs=2, verbose=0)
    return shown(model, history)


@program("masked sequence to sequence (`mask_zero`)", quick=True)
def seq2seq(scope):
    options = {"loss": "sparse_categorical_crossentropy", "metrics": ["accuracy"]}
    return _seq2seq(scope, optimizer=keras.optimizers.SGD(0.1), **options)


@program("the same with `reduction='mean_with_sample_weight'`")
def seq2seq_mean_of_weights(scope):
    loss = keras.losses.SparseCategoricalCrossentropy(reduction="mean_with_sample_weight")
    return _seq2seq(scope, optimizer=keras.optimizers.SGD(0.1), loss=loss)


class OwnMask(keras.losses.Loss):
    """The mean over the words of the batch that are not padding, computed by itself."""

    def call(self, y_true, y_pred):
        losses = keras.losses.sparse_categorical_crossentropy(y_true, y_pred)
        mask = ops.cast(y_true > 0, losses.dtype)
        return ops.sum(losses * mask) / ops.sum(mask)


@program(
    "named entities: a loss class that divides by the number of words itself",
    differs="a worker divides by the number of its own words, and its rows weigh, not its words",
)
def seq2seq_own_mask(scope):
    return _seq2seq(scope, optimizer=keras.optimizers.SGD(0.1), loss=OwnMask())


class MaskedLanguageModel(keras.Model):
    """Its own `train_step` passes weights to a loss object, and a vector to the tape."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.loss_fn = keras.losses.SparseCategoricalCrossentropy(reduction="none")
        self.loss_tracker = keras.metrics.Mean(name="loss")

    def train_step(self, inputs):
        features, labels, weights = inputs
        with tf.GradientTape() as tape:
            predictions = self(features, training=True)
            loss = self.loss_fn(labels, predictions, sample_weight=weights)
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))
        self.loss_tracker.update_state(loss, sample_weight=weights)
        return {"loss": self.loss_tracker.result()}

    @property
    def metrics(self):
        return [self.loss_tracker]


@program("masked language model: own `train_step` whose loss is a tensor of rows and words")
def masked_language_model(scope):
    keras.utils.set_random_seed(4)
    words = _sentences()
    hidden = np.where(integers(3, ROWS, _LENGTH) == 0, _WORDS, words).astype("int32")
    weights = (hidden == _WORDS).astype(keras.config.floatx())
    dataset = tf.data.Dataset.from_tensor_slices((hidden, words, weights)).batch(BATCH)
    with scope():
        inputs = keras.Input([_LENGTH], dtype="int32")
        tokens = TransformerBlock(4, 2)(TokenAndPosition(_WORDS + 1, _LENGTH, 4)(inputs))
        model = MaskedLanguageModel(inputs, layers.Dense(_WORDS, "softmax")(tokens))
        model.compile(keras.optimizers.SGD(0.01))
    return shown(model, model.fit(dataset, epochs=2, verbose=0))


@program(
    "timeseries forecast: LSTM, `EarlyStopping`, `ModelCheckpoint`, best weights loaded", quick=True
)
def timeseries_lstm(scope, folder):
    keras.utils.set_random_seed(5)
    series = np.sin(np.arange(90) / 5.0)[:, None] + numbers(90, 2) / 10
    windows = keras.utils.timeseries_dataset_from_array
    options = {"sequence_length": 5, "batch_size": BATCH}
    train = windows(series[:66], series[5:66, :1], **options)
    held_out = windows(series[66:], series[71:, :1], **options)
    path = folder / "best.weights.h5"
    with scope():
        inputs = keras.Input([5, 2])
        model = keras.Model(inputs, layers.Dense(1)(layers.LSTM(4)(inputs)))
        model.compile(keras.optimizers.Adam(0.1), "mse")
    callbacks = [
        keras.callbacks.EarlyStopping(monitor="val_loss", min_delta=0.02, patience=1),
        keras.callbacks.ModelCheckpoint(
            path, monitor="val_loss", save_weights_only=True, save_best_only=True
        ),
    ]
    history = model.fit(train, epochs=9, validation_data=held_out, callbacks=callbacks, verbose=0)
    model.load_weights(path)
    return shown(model, history, predictions=model.predict(held_out, verbose=0))


@program("timeseries transformer with `ReduceLROnPlateau`")
def timeseries_transformer(scope):
    keras.utils.set_random_seed(6)
    x, y = numbers(ROWS, 8, 1), integers(2, ROWS)
    with scope():
        inputs = keras.Input([8, 1])
        attended = layers.MultiHeadAttention(2, 4)(inputs, inputs)
        tokens = layers.LayerNormalization(epsilon=1e-6)(attended) + inputs
        tokens = layers.Conv1D(1, 1)(layers.Conv1D(4, 1, activation="relu")(tokens)) + tokens
        pooled = layers.GlobalAveragePooling1D(data_format="channels_first")(tokens)
        model = keras.Model(inputs, layers.Dense(2, "softmax")(layers.Dense(4, "relu")(pooled)))
        model.compile(
            keras.optimizers.Adam(0.01),
            "sparse_categorical_crossentropy",
            metrics=["sparse_categorical_accuracy"],
        )
    slower = keras.callbacks.ReduceLROnPlateau(patience=1, factor=0.5, min_delta=0.1)
    history = model.fit(
        x, y, validation_split=0.2, epochs=4, batch_size=BATCH, callbacks=[slower], verbose=0
    )
    return shown(model, history)
