"""Programs that make pictures. They have their own `train_step`s, and most have no `call`.

Each comes twice: with noise that is part of the data, so that losses and weights can be compared,
and with noise that is drawn in the step, where each worker draws its own.
"""

import keras
import tensorflow as tf
from keras import layers, ops

from tests.foreign.table import BATCH, ROWS, numbers, pictures, program, shown

_CODE = 3


class Sampling(layers.Layer):
    """Draws a code."""

    def __init__(self):
        super().__init__()
        self.seed_generator = keras.random.SeedGenerator(17)

    def call(self, inputs):
        mean, log_variance = inputs
        noise = keras.random.normal(ops.shape(mean), dtype=mean.dtype, seed=self.seed_generator)
        return mean + ops.exp(0.5 * log_variance) * noise


class VAE(keras.Model):
    def __init__(self, encoder, decoder, sampling=None):
        super().__init__()
        self.encoder, self.decoder, self.sampling = encoder, decoder, sampling
        self.total_loss_tracker = keras.metrics.Mean(name="total_loss")
        self.reconstruction_loss_tracker = keras.metrics.Mean(name="reconstruction_loss")
        self.kl_loss_tracker = keras.metrics.Mean(name="kl_loss")

    @property
    def metrics(self):
        return [self.total_loss_tracker, self.reconstruction_loss_tracker, self.kl_loss_tracker]

    def train_step(self, data):
        with tf.GradientTape() as tape:
            if self.sampling is None:
                data, noise = data
                mean, log_variance = self.encoder(data)
                code = mean + ops.exp(0.5 * log_variance) * noise
            else:
                mean, log_variance = self.encoder(data)
                code = self.sampling([mean, log_variance])
            made = self.decoder(code)
            reconstruction = ops.mean(
                ops.sum(keras.losses.binary_crossentropy(data, made), axis=(1, 2))
            )
            kl = -0.5 * (1 + log_variance - ops.square(mean) - ops.exp(log_variance))
            kl = ops.mean(ops.sum(kl, axis=1))
            total = reconstruction + kl
        gradients = tape.gradient(total, self.trainable_weights)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_weights))
        self.total_loss_tracker.update_state(total)
        self.reconstruction_loss_tracker.update_state(reconstruction)
        self.kl_loss_tracker.update_state(kl)
        return {
            "loss": self.total_loss_tracker.result(),
            "reconstruction_loss": self.reconstruction_loss_tracker.result(),
            "kl_loss": self.kl_loss_tracker.result(),
        }


def _vae(scope, sampling, rate):
    with scope():
        picture = keras.Input([8, 8, 1])
        x = layers.Conv2D(4, 3, strides=2, activation="relu", padding="same")(picture)
        x = layers.Dense(8, "relu")(layers.Flatten()(x))
        encoder = keras.Model(picture, [layers.Dense(_CODE)(x), layers.Dense(_CODE)(x)])
        decoder = keras.Sequential(
            [
                keras.Input([_CODE]),
                layers.Dense(4 * 4 * 2, "relu"),
                layers.Reshape([4, 4, 2]),
                layers.Conv2DTranspose(1, 3, strides=2, activation="sigmoid", padding="same"),
            ]
        )
        model = VAE(encoder, decoder, Sampling() if sampling else None)
        model.compile(optimizer=keras.optimizers.Adam(rate))
    return model


@program("variational autoencoder with its own `train_step` and no `call`", quick=True)
def vae(scope):
    keras.utils.set_random_seed(1)
    model = _vae(scope, False, 0.001)
    data = tf.data.Dataset.from_tensor_slices((pictures(ROWS)[0], numbers(ROWS, _CODE)))
    history = model.fit(data.batch(BATCH), epochs=3, verbose=0)
    return shown([model.encoder, model.decoder], history)


@program("the same, drawing its noise", tolerance=0.05, on_average=True)
def vae_drawing(scope):
    keras.utils.set_random_seed(1)
    model = _vae(scope, True, 0.01)
    history = model.fit(pictures(240)[0], epochs=5, batch_size=BATCH, verbose=0)
    return shown([model.encoder, model.decoder], history)


def _discriminator():
    return keras.Sequential(
        [
            keras.Input([8, 8, 1]),
            layers.Conv2D(4, 4, strides=2, padding="same"),
            layers.LeakyReLU(negative_slope=0.2),
            layers.Flatten(),
            layers.Dense(1, activation="sigmoid"),
        ],
        name="discriminator",
    )


def _generator():
    return keras.Sequential(
        [
            keras.Input([_CODE]),
            layers.Dense(4 * 4 * 2),
            layers.Reshape([4, 4, 2]),
            layers.Conv2DTranspose(4, 4, strides=2, padding="same"),
            layers.LeakyReLU(negative_slope=0.2),
            layers.Conv2D(1, 3, padding="same", activation="sigmoid"),
        ],
        name="generator",
    )


class GAN(keras.Model):
    def __init__(self, noise_in_data):
        super().__init__()
        self.discriminator, self.generator = _discriminator(), _generator()
        self.noise_in_data = noise_in_data
        self.seed_generator = keras.random.SeedGenerator(1337)

    def compile(self, d_optimizer, g_optimizer, loss_fn):
        super().compile()
        self.d_optimizer, self.g_optimizer, self.loss_fn = d_optimizer, g_optimizer, loss_fn
        self.d_loss_metric = keras.metrics.Mean(name="d_loss")
        self.g_loss_metric = keras.metrics.Mean(name="g_loss")

    @property
    def metrics(self):
        return [self.d_loss_metric, self.g_loss_metric]

    def _codes(self, rows):
        return keras.random.normal([rows, _CODE], seed=self.seed_generator)

    def train_step(self, real):
        if self.noise_in_data:
            real, codes, more_codes = real
        rows = ops.shape(real)[0]
        if not self.noise_in_data:
            codes, more_codes = self._codes(rows), self._codes(rows)
        pictures = ops.concatenate([self.generator(codes), real], axis=0)
        labels = ops.concatenate([ops.ones((rows, 1)), ops.zeros((rows, 1))], axis=0)
        with tf.GradientTape() as tape:
            d_loss = self.loss_fn(labels, self.discriminator(pictures))
        gradients = tape.gradient(d_loss, self.discriminator.trainable_weights)
        self.d_optimizer.apply_gradients(zip(gradients, self.discriminator.trainable_weights))
        with tf.GradientTape() as tape:
            judged = self.discriminator(self.generator(more_codes))
            g_loss = self.loss_fn(ops.zeros((rows, 1)), judged)
        gradients = tape.gradient(g_loss, self.generator.trainable_weights)
        self.g_optimizer.apply_gradients(zip(gradients, self.generator.trainable_weights))
        self.d_loss_metric.update_state(d_loss)
        self.g_loss_metric.update_state(g_loss)
        return {"d_loss": self.d_loss_metric.result(), "g_loss": self.g_loss_metric.result()}


def _train_gan(scope, data, epochs, noise_in_data):
    with scope():
        model = GAN(noise_in_data)
        model.compile(
            d_optimizer=keras.optimizers.Adam(1e-3),
            g_optimizer=keras.optimizers.Adam(1e-3),
            loss_fn=keras.losses.BinaryCrossentropy(),
        )
    history = model.fit(data, epochs=epochs, verbose=0)
    return shown([model.generator, model.discriminator], history)


@program("DCGAN: two optimizers, a loss object, own `train_step` and no `call`", quick=True)
def dcgan(scope):
    keras.utils.set_random_seed(2)
    data = pictures(ROWS)[0], numbers(ROWS, _CODE), numbers(ROWS, _CODE, seed=1)
    dataset = tf.data.Dataset.from_tensor_slices(data).batch(BATCH)
    return _train_gan(scope, dataset, 2, True)


@program("the same, drawing its noise", tolerance=0.1, on_average=True)
def dcgan_drawing(scope):
    keras.utils.set_random_seed(2)
    dataset = tf.data.Dataset.from_tensor_slices(pictures(240)[0]).shuffle(240).batch(BATCH)
    return _train_gan(scope, dataset, 5, False)


class WGAN(keras.Model):
    """With a penalty on the critic's gradient, and several critic updates for each generator's."""

    def __init__(self, noise_in_data, updates=3):
        super().__init__()
        self.critic, self.generator = _discriminator(), _generator()
        self.critic.layers[-1].activation = keras.activations.linear
        self.noise_in_data, self.updates = noise_in_data, updates
        self.seed_generator = keras.random.SeedGenerator(5)

    def compile(self, c_optimizer, g_optimizer, c_loss_fn, g_loss_fn):
        super().compile()
        self.c_optimizer, self.g_optimizer = c_optimizer, g_optimizer
        self.c_loss_fn, self.g_loss_fn = c_loss_fn, g_loss_fn

    def gradient_penalty(self, real, made, share):
        between = real + share * (made - real)
        with tf.GradientTape() as tape:
            tape.watch(between)
            judged = self.critic(between, training=True)
        slopes = tape.gradient(judged, [between])[0]
        lengths = tf.sqrt(tf.reduce_sum(tf.square(slopes), axis=[1, 2, 3]))
        return tf.reduce_mean((lengths - 1.0) ** 2)

    def train_step(self, data):
        if self.noise_in_data:
            real, all_codes, shares = data
        else:
            real = data
            rows = tf.shape(real)[0]
            draw = {"dtype": real.dtype, "seed": self.seed_generator}
            all_codes = keras.random.normal([rows, self.updates + 1, _CODE], **draw)
            shares = keras.random.uniform([rows, self.updates, 1, 1, 1], **draw)
        for index in range(self.updates):
            with tf.GradientTape() as tape:
                made = self.generator(all_codes[:, index], training=True)
                c_loss = self.c_loss_fn(
                    self.critic(real, training=True), self.critic(made, training=True)
                )
                c_loss += 10.0 * self.gradient_penalty(real, made, shares[:, index])
            gradients = tape.gradient(c_loss, self.critic.trainable_variables)
            self.c_optimizer.apply_gradients(zip(gradients, self.critic.trainable_variables))
        with tf.GradientTape() as tape:
            made = self.generator(all_codes[:, -1], training=True)
            g_loss = self.g_loss_fn(self.critic(made, training=True))
        gradients = tape.gradient(g_loss, self.generator.trainable_variables)
        self.g_optimizer.apply_gradients(zip(gradients, self.generator.trainable_variables))
        return {"c_loss": c_loss, "g_loss": g_loss}


def _train_wgan(scope, data, epochs, noise_in_data):
    with scope():
        model = WGAN(noise_in_data)
        model.compile(
            c_optimizer=keras.optimizers.Adam(1e-3, beta_1=0.5, beta_2=0.9),
            g_optimizer=keras.optimizers.Adam(1e-3, beta_1=0.5, beta_2=0.9),
            c_loss_fn=lambda real, made: tf.reduce_mean(made) - tf.reduce_mean(real),
            g_loss_fn=lambda made: -tf.reduce_mean(made),
        )
    history = model.fit(data, epochs=epochs, verbose=0)
    return shown([model.generator, model.critic], history)


@program("WGAN-GP: three updates of the critic in a step, gradient penalty, scalar loss functions")
def wgan_gp(scope):
    keras.utils.set_random_seed(3)
    shares = (numbers(ROWS, 3, 1, 1, 1, seed=4) > 0).astype(keras.config.floatx()) / 2
    data = pictures(ROWS)[0], numbers(ROWS, 4, _CODE), shares
    dataset = tf.data.Dataset.from_tensor_slices(data).batch(BATCH)
    return _train_wgan(scope, dataset, 2, True)


class Diffusion(keras.Model):
    """Learns to tell the noise from the picture; a slow copy of the network is kept beside it."""

    def __init__(self):
        super().__init__()
        self.normalizer = layers.Normalization()
        self.network = self._build_network()
        self.ema_network = keras.models.clone_model(self.network)

    @staticmethod
    def _build_network():
        layer = [layers.Conv2D(4, 3, padding="same", activation="swish")]
        return keras.Sequential(
            [keras.Input([8, 8, 2]), *layer, layers.Conv2D(1, 3, padding="same")]
        )

    def compile(self, **options):
        super().compile(**options)
        self.noise_loss_tracker = keras.metrics.Mean(name="n_loss")

    @property
    def metrics(self):
        return [self.noise_loss_tracker]

    def _denoise(self, network, data):
        pictures, noise, times = data
        pictures = self.normalizer(pictures)
        angle = times[:, None, None, None]
        noisy = ops.cos(angle) * pictures + ops.sin(angle) * noise
        return network(ops.concatenate([noisy, angle * ops.ones_like(noisy)], -1))

    def train_step(self, data):
        with tf.GradientTape() as tape:
            noise_loss = self.loss(data[1], self._denoise(self.network, data))
        gradients = tape.gradient(noise_loss, self.network.trainable_weights)
        self.optimizer.apply_gradients(zip(gradients, self.network.trainable_weights))
        self.noise_loss_tracker.update_state(noise_loss)
        for weight, slow in zip(self.network.weights, self.ema_network.weights):
            slow.assign(0.9 * slow + 0.1 * weight)
        return {metric.name: metric.result() for metric in self.metrics}

    def test_step(self, data):
        noise_loss = self.loss(data[1], self._denoise(self.ema_network, data))
        self.noise_loss_tracker.update_state(noise_loss)
        return {metric.name: metric.result() for metric in self.metrics}


@program("diffusion model: loss from `compile(loss=...)` called as `self.loss`, slow weights")
def diffusion(scope):
    keras.utils.set_random_seed(4)
    times = abs(numbers(ROWS, seed=2)) / 3
    data = pictures(ROWS)[0], numbers(ROWS, 8, 8, 1, seed=1), times
    dataset = tf.data.Dataset.from_tensor_slices(data).batch(BATCH)
    with scope():
        model = Diffusion()
        model.normalizer.adapt(data[0])
        model.compile(
            optimizer=keras.optimizers.AdamW(1e-3, weight_decay=1e-4),
            loss=lambda y, made: ops.mean(ops.abs(y - made)),
        )
    history = model.fit(dataset, epochs=2, validation_data=dataset.take(2), verbose=0)
    return shown([model.network, model.ema_network], history)
