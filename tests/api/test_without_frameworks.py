"""What needs no framework works without it: an import of one of them fails in these processes."""

import os
import subprocess
import sys

import pytest

_BLOCK = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {blocked}:
            raise ModuleNotFoundError("blocked: " + name)

sys.meta_path.insert(0, Blocked())
"""
_NEUTRAL = """
import numpy as np, tf_byteps
from tf_byteps.exchange import equality, leaving, object_gather
from tf_byteps.exchange.compression_choice import of_variables, resolve_choice

def program():
    sent = {"a": np.arange(3), "b": (b"1", None)}
    got = tf_byteps.broadcast_object(sent)
    assert got["a"].tolist() == [0, 1, 2] and got["b"] == (b"1", None)
    try:
        tf_byteps.allgather_object(print)
    except TypeError as error:
        assert "the object of worker 0 cannot be sent" in str(error)
    assert tf_byteps.allgather_object("x", name="n") == ["x"]
    assert equality.difference("test", ["v"], [7]) is None
    assert leaving.meet({"is": 1}) == ([{"is": 1}], False)
    assert object_gather.gather_objects("o", [1]) == [[1]]

tf_byteps.init()
program()
assert tf_byteps.ReduceOp("average") is tf_byteps.Average
assert tf_byteps.Compression.int4(feedback=True).codec == "int4:block=32,feedback=1"
choice = resolve_choice(lambda variable: "bf16" if variable is None else "powersgd")
assert [each.__name__ for each in of_variables(choice, [None])] == ["BF16Compressor"]
assert tf_byteps.Compression.from_byteps({"compressor": "onebit"}).codec.startswith("onebit")
tf_byteps.shutdown()
"""
_TENSORFLOW = """
import tensorflow as tf, tf_byteps, tf_byteps.keras
tf_byteps.init()
assert tf_byteps.push_pull(tf.ones(2), compression="fp16").numpy().tolist() == [1, 1]
assert tf_byteps.allgather_object([1]) == [[1]]
tf_byteps.BytePSStrategy()
"""
_KERAS_ON_JAX = """
import tempfile, keras, numpy as np, tf_byteps, tf_byteps.keras as bps
bps.init()
model = keras.Sequential([keras.layers.Dense(1)])
model.compile(tf_byteps.DistributedOptimizer(keras.optimizers.SGD(0.1)), "mse")
callbacks = [
    bps.callbacks.BroadcastGlobalVariablesCallback(0),
    bps.callbacks.MetricAverageCallback(),
    bps.callbacks.LearningRateWarmupCallback(1),
    bps.callbacks.LeaveOnSignal(),
]
model.fit(np.ones([4, 2]), np.ones([4, 1]), batch_size=2, callbacks=callbacks, verbose=0)
with tempfile.TemporaryDirectory() as folder:
    model.save(path := f"{folder}/model.keras")
    loaded = bps.load_model(path)
assert loaded.optimizer.byteps_reduction.is_plain
assert bps.push_pull(np.float64(3), name="x") == 3 and bps.allgather_object("x") == ["x"]
for name in ("layers", "optimizers"):
    try:
        getattr(bps, name).anything
    except NotImplementedError as error:
        assert f"tf_byteps.keras.{name} does not work with KERAS_BACKEND=jax" in str(error)
"""
# In the same process: most of this test's time is imports.
_STRATEGY_ON_JAX = """
with tf_byteps.BytePSStrategy(sparse_as_dense=True).scope():
    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile("sgd", "mse")
model.fit(np.ones([4, 2]), np.ones([4, 1]), batch_size=2, verbose=0)
assert model.predict(np.ones([3, 2]), verbose=0).shape == (3, 1)
state = tf_byteps.elastic.KerasState(model, epoch=0)
state.commit()
for name in ("OuterSyncState", "TensorFlowState"):
    try:
        getattr(tf_byteps.elastic, name)
    except ImportError as error:
        said = f"tf_byteps.elastic.{name} is for Keras on TensorFlow, and KERAS_BACKEND is 'jax'"
        assert said in str(error)
    else:
        raise AssertionError
assert "tensorflow" not in sys.modules
tf_byteps.shutdown()
"""
_KERAS_ON_NUMPY = """
import tf_byteps
try:
    tf_byteps.DistributedOptimizer
except ImportError as error:
    said = "tf_byteps.keras is for Keras on TensorFlow or JAX, and KERAS_BACKEND is 'numpy': set it"
    assert said in str(error)
else:
    raise AssertionError
"""
_JAX_ARRAYS = """
import tf_byteps, tf_byteps.jax, jax, jax.numpy as jnp
sys.modules["tensorflow"] = None
tf_byteps.init()
x = jnp.ones(2)
assert tf_byteps.push_pull(x, compression="fp16").tolist() == [1, 1]
assert jax.jit(lambda x: tf_byteps.push_pull([x, 2 * x], op="sum"))(x)[1].tolist() == [2, 2]
assert tf_byteps.broadcast(x, root_rank=0).tolist() == [1, 1]
assert tf_byteps.gather(x).tolist() == tf_byteps.allgather(x).tolist() == [1, 1]
state = tf_byteps.elastic.JaxState(x=x, step=0)
assert tf_byteps.elastic.run(lambda state: state.commit() or state.x)(state).tolist() == [1, 1]
tf_byteps.shutdown()
"""


@pytest.mark.parametrize(
    "blocked, program, backend",
    [
        (["tensorflow", "keras", "jax"], _NEUTRAL, "tensorflow"),
        (["jax"], _TENSORFLOW, "tensorflow"),
        (["tensorflow"], _KERAS_ON_JAX + _STRATEGY_ON_JAX, "jax"),
        (["tensorflow"], _KERAS_ON_NUMPY, "numpy"),
        (["tensorflow", "keras"], _JAX_ARRAYS, "jax"),
    ],
    ids=["neutral", "tensorflow", "keras on jax", "keras on numpy", "jax"],
)
def test_without(blocked, program, backend):
    if backend != "tensorflow":  # Keras on NumPy needs it, too
        pytest.importorskip("jax", reason="Keras on JAX needs jax")
    run = subprocess.run(
        [sys.executable, "-c", _BLOCK.format(blocked=blocked) + program],
        env={**os.environ, "KERAS_BACKEND": backend, "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert run.returncode == 0, run.stderr
