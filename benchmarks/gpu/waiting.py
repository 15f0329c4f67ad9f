"""What it costs that a step waits: one GPU, no strategy, no exchange.

    python -m benchmarks.gpu.waiting bert-large resnet50

TensorFlow prepares a step while the GPU is still busy with the one before. A step that waits for
anything outside of the GPU, be it other workers, ends that: the GPU has nothing to do from the end
of a step until the next one's first kernels are there.
"""

import statistics
import sys
import time

import keras
import tensorflow as tf

from benchmarks.sessions import ROOT

sys.path.append(str(ROOT / "examples"))
import keras_synthetic_benchmark as synthetic  # noqa: E402

_STEPS = 15


def measure(step, waits):
    """Trains some steps; prints what one takes, and how much of that passes on the CPU first."""
    to_first, to_return = [], []
    begin = time.perf_counter()
    for _ in range(_STEPS):
        called = time.time()
        loss, first = step()
        to_return.append(time.time() - called)
        to_first.append((first, called))
        if waits:
            float(loss)
    float(loss)
    each = (time.perf_counter() - begin) / _STEPS
    delay = statistics.median(float(first) - called for first, called in to_first)
    print(
        f"{'waiting' if waits else 'not waiting'}: {each * 1e3:.1f} ms a step, call to its first "
        f"operation {delay * 1e3:.1f} ms, call to return {statistics.median(to_return) * 1e3:.1f} "
        f"ms",
        flush=True,
    )


def main():
    keras.mixed_precision.set_global_policy("mixed_bfloat16")
    for model in sys.argv[1:]:
        keras.utils.set_random_seed(1)
        batch = synthetic.MODELS[model][1]
        inner, _ = synthetic.make_step(tf.distribute.get_strategy(), model, batch)

        @tf.function(jit_compile=False)
        def step(inner=inner):
            first = tf.timestamp()
            return inner(), first

        for _ in range(5):
            float(step()[0])
        print(model)
        for _ in range(2):
            measure(step, waits=False)
            measure(step, waits=True)


if __name__ == "__main__":
    main()
