"""Programs about pictures."""

import keras
import tensorflow as tf
from keras import layers, ops

from tests.foreign.table import BATCH, OWN_ROWS, ROWS, pictures, program, shown


@program("convolutional classifier with a validation split", quick=True)
def convnet(scope):
    keras.utils.set_random_seed(1)
    x, labels = pictures(ROWS)
    y = keras.utils.to_categorical(labels, 4)
    with scope():
        model = keras.Sequential(
            [
                keras.Input([8, 8, 1]),
                layers.Conv2D(4, 3, activation="relu"),
                layers.MaxPooling2D(),
                layers.Flatten(),
                layers.Dropout(0.0),
                layers.Dense(4, activation="softmax"),
            ]
        )
        model.compile("adam", "categorical_crossentropy", metrics=["accuracy"])
    history = model.fit(x, y, batch_size=BATCH, epochs=3, validation_split=0.2, verbose=0)
    scores = model.evaluate(x, y, verbose=0)
    return shown(model, history, scores=scores, predictions=model.predict(x, verbose=0))


@program("denoising autoencoder")
def denoising_autoencoder(scope):
    keras.utils.set_random_seed(2)
    clean, _ = pictures(ROWS)
    noisy = clean + pictures(ROWS, seed=1)[0] / 4
    with scope():
        picture = keras.Input([8, 8, 1])
        x = layers.Conv2D(4, 3, activation="relu", padding="same")(picture)
        x = layers.MaxPooling2D(padding="same")(x)
        x = layers.Conv2DTranspose(4, 3, strides=2, activation="relu", padding="same")(x)
        x = layers.Conv2D(1, 3, activation="sigmoid", padding="same")(x)
        model = keras.Model(picture, x)
        model.compile("adam", "binary_crossentropy")
    first = model.fit(clean, clean, batch_size=BATCH, shuffle=True, verbose=0)
    model.fit(
        noisy, clean, batch_size=BATCH, epochs=2, validation_data=(noisy[:7], clean[:7]), verbose=0
    )
    return shown(model, model.history, first=first.history["loss"])


@program("small vision transformer with warm-up and weight decay")
def vision_transformer(scope):
    keras.utils.set_random_seed(3)
    x, y = pictures(ROWS)
    with scope():
        picture = keras.Input([8, 8, 1])
        tokens = layers.Conv2D(8, 4, strides=4)(picture)
        tokens = layers.Reshape([4, 8])(tokens)
        tokens = tokens + layers.Embedding(4, 8)(ops.arange(4))
        attended = layers.MultiHeadAttention(2, 4)(tokens, tokens)
        tokens = layers.LayerNormalization()(tokens + attended)
        model = keras.Model(picture, layers.Dense(4)(layers.GlobalAveragePooling1D()(tokens)))
        rate = keras.optimizers.schedules.CosineDecay(0.0, 12, warmup_target=0.01, warmup_steps=4)
        model.compile(
            keras.optimizers.AdamW(rate, weight_decay=1e-3),
            keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            metrics=[keras.metrics.SparseCategoricalAccuracy(name="accuracy")],
        )
    return shown(model, model.fit(x, y, batch_size=BATCH, epochs=2, verbose=0))


@program(
    "a model with batch normalization, frozen, under a new head; then all of it is tuned",
    differs=OWN_ROWS,
)
def transfer_learning(scope):
    keras.utils.set_random_seed(8)
    x, y = pictures(ROWS)
    with scope():
        base = keras.Sequential(
            [keras.Input([8, 8, 1]), layers.Conv2D(3, 3), layers.BatchNormalization()]
        )
        base.trainable = False
        picture = keras.Input([8, 8, 1])
        features = layers.GlobalAveragePooling2D()(base(picture, training=False))
        model = keras.Model(picture, layers.Dense(4)(layers.Dropout(0.0)(features)))
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.Adam(), loss, metrics=["accuracy"])
    first = model.fit(x, y, batch_size=BATCH, epochs=2, verbose=0).history["loss"]
    base.trainable = True
    with scope():
        model.compile(keras.optimizers.Adam(1e-3), loss, metrics=["accuracy"])
    history = model.fit(x, y, batch_size=BATCH, epochs=2, verbose=0)
    return shown(model, history, first=first)


@program("convolutional classifier in mixed precision", tolerance=1e-3, dtype="float32")
def mixed_precision(scope):
    keras.utils.set_random_seed(9)
    x, y = pictures(ROWS)
    keras.mixed_precision.set_global_policy("mixed_float16")
    try:
        with scope():
            model = keras.Sequential(
                [
                    keras.Input([8, 8, 1]),
                    layers.Conv2D(4, 3, activation="relu"),
                    layers.Flatten(),
                    layers.Dense(4),
                    layers.Activation("softmax", dtype="float32"),
                ]
            )
            model.compile(keras.optimizers.RMSprop(), "sparse_categorical_crossentropy")
        return shown(model, model.fit(x, y, batch_size=BATCH, epochs=2, verbose=0))
    finally:
        keras.mixed_precision.set_global_policy("float32")


@program("mixup: two shuffled datasets, zipped and blended at random in `map`")
def mixup(scope):
    keras.utils.set_random_seed(10)
    x, labels = pictures(ROWS)
    y = keras.utils.to_categorical(labels, 4).astype(x.dtype)

    def shuffled():
        return tf.data.Dataset.from_tensor_slices((x, y)).shuffle(ROWS).batch(BATCH)

    def blend(one, two):
        share = tf.random.uniform([tf.shape(one[0])[0]], dtype=one[0].dtype)
        wide = share[:, None, None, None]
        pictures = one[0] * wide + two[0] * (1 - wide)
        return pictures, one[1] * share[:, None] + two[1] * (1 - share[:, None])

    with scope():
        model = keras.Sequential(
            [keras.Input([8, 8, 1]), layers.Flatten(), layers.Dense(4, "softmax")]
        )
        model.compile("sgd", "categorical_crossentropy")
    dataset = tf.data.Dataset.zip((shuffled(), shuffled())).map(blend)
    return shown(model, model.fit(dataset, epochs=3, verbose=0))


@program("data augmentation by layers of the model", tolerance=0.2, on_average=True)
def augmentation(scope):
    keras.utils.set_random_seed(11)
    x, y = pictures(240)
    with scope():
        model = keras.Sequential(
            [
                keras.Input([8, 8, 1]),
                layers.RandomTranslation(0.1, 0.1),
                layers.GaussianNoise(0.1),
                layers.Flatten(),
                layers.Dropout(0.3),
                layers.Dense(4, "softmax"),
            ]
        )
        model.compile(keras.optimizers.Adam(0.01), "sparse_categorical_crossentropy")
    return shown(model, model.fit(x, y, batch_size=BATCH, epochs=6, verbose=0))
