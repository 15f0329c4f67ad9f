"""What the workers of test_factors.py do."""

import tensorflow as tf

import tf_byteps as bps


def scaled():
    """float64 sums of workers, with factors that no float32 has: of tensors, gradients, rows."""
    bps.init()
    x = tf.constant([1.0, 3.0], tf.float64)
    rows = tf.IndexedSlices(x[:, None], tf.constant([0, 2]), tf.constant([4, 1]))
    with bps.DistributedGradientTape(
        tf.GradientTape(), op=bps.Sum, gradient_predivide_factor=1.0
    ) as tape:
        variable = tf.Variable(x)
        tape.watch(variable)
        loss = tf.reduce_sum(variable * variable)
    return {
        "before": bps.push_pull(x, op=bps.Sum, name="a", prescale_factor=0.1).numpy().tolist(),
        "after": bps.push_pull(x, op=bps.Sum, name="b", postscale_factor=0.1).numpy().tolist(),
        "tensor": bps.push_pull(x, op=bps.Sum, name="c", prescale_factor=tf.constant(0.5))
        .numpy()
        .tolist(),
        "rows": bps.push_pull(rows, op=bps.Sum, name="d", postscale_factor=0.1)
        .values.numpy()
        .ravel()
        .tolist(),
        "gradient": tape.gradient(loss, variable).numpy().tolist(),
    }
