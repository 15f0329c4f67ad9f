"""Training steps that the cases choose from, as JAX's users write them."""

import jax
import jax.numpy as jnp
import keras


class OwnStep(keras.Model):
    """A training step of one's own."""

    def loss_of(self, y, made):
        raise NotImplementedError

    def train_step(self, state, data):
        trainable, non_trainable, optimizer, of_metrics = state
        x, y = data

        def scaled_loss(trainable):
            made, after, penalties = self.stateless_call(
                trainable, non_trainable, x, training=True, return_losses=True
            )
            loss = self.loss_of(y, made)
            loss += sum(jnp.asarray(penalty, loss.dtype) for penalty in penalties)
            with keras.StatelessScope(zip(self.optimizer.variables, optimizer)):
                return self.optimizer.scale_loss(loss), (loss, after)

        (_, (loss, non_trainable)), gradients = jax.value_and_grad(scaled_loss, has_aux=True)(
            trainable
        )
        trainable, optimizer = self.optimizer.stateless_apply(optimizer, gradients, trainable)
        return {"step_loss": loss}, (trainable, non_trainable, optimizer, of_metrics)


class MeanStep(OwnStep):
    def loss_of(self, y, made):
        return jnp.mean(jnp.abs(jnp.asarray(made, y.dtype) - y))


class ObjectStep(OwnStep):
    def loss_of(self, y, made):
        return keras.losses.MeanSquaredError()(y, made)
