"""The names of `tf_byteps` and `tf_byteps.keras`: those of Horovod are all there."""

import ast
import importlib
import pathlib

import pytest

import tf_byteps
import tf_byteps.keras
from tests.cluster import run_workers
from tf_byteps.exchange import unsupported

# What a program can ask of horovod.tensorflow 0.28.
HOROVOD = """
Adasum Average BroadcastGlobalVariablesHook Compression DistributedGradientTape
DistributedOptimizer Max Min PartialDistributedGradientTape PartialDistributedOptimizer ProcessSet
Product Sum SyncBatchNormalization add_process_set allgather allgather_object allreduce alltoall
broadcast broadcast_ broadcast_global_variables broadcast_object broadcast_object_fn
broadcast_variables ccl_built check_num_rank_power_of_2 cross_rank cross_size cuda_built ddl_built
elastic global_process_set gloo_built gloo_enabled gpu_available grouped_allgather
grouped_allreduce grouped_reducescatter init is_homogeneous is_initialized join local_rank
local_rank_op local_size local_size_op mpi_built mpi_enabled mpi_threads_supported nccl_built
num_rank_is_power_2 process_set_included_op rank rank_op reducescatter remove_process_set
rocm_built shutdown size size_op start_timeline stop_timeline
""".split()
# And of horovod.keras, or horovod.tensorflow.keras.
HOROVOD_KERAS = """
Adasum Average Compression DistributedOptimizer PartialDistributedOptimizer ProcessSet Sum
add_process_set allgather allgather_object allreduce broadcast broadcast_global_variables
broadcast_object broadcast_variables callbacks ccl_built cross_rank cross_size cuda_built ddl_built
elastic global_process_set gloo_built gloo_enabled init is_homogeneous is_initialized load_model
local_rank local_size mpi_built mpi_enabled mpi_threads_supported nccl_built rank reducescatter
remove_process_set rocm_built shutdown size start_timeline stop_timeline
""".split()


@pytest.mark.parametrize(
    "module, names",
    [(tf_byteps, HOROVOD), (tf_byteps.keras, HOROVOD_KERAS)],
    ids=["tensorflow", "keras"],
)
def test_names_of_horovod(module, names):
    assert [name for name in names if not hasattr(module, name)] == []
    left_out = {
        name for name in names if isinstance(getattr(module, name), unsupported.Unsupported)
    }
    assert left_out <= set(unsupported.INSTEAD)
    for name in left_out:
        with pytest.raises(NotImplementedError, match=f"tf_byteps has no {name}: "):
            getattr(module, name)()


def test_facts_of_the_build():
    true = {name for name in dir(tf_byteps) if name.endswith(("_built", "_enabled", "_supported"))}
    true = {name for name in true if getattr(tf_byteps, name)()}
    assert true == {"cuda_built", "nccl_built"}
    assert [n for n in range(10) if tf_byteps.num_rank_is_power_2(n)] == [1, 2, 4, 8]


def test_type_checkers_see_the_names_that_a_program_finds():
    stub = pathlib.Path(tf_byteps.__file__).with_suffix(".pyi")
    seen = {"__version__"}
    for statement in ast.parse(stub.read_text()).body:
        for alias in statement.names if isinstance(statement, ast.ImportFrom) else ():
            assert alias.asname == alias.name  # "as": it is part of what the module offers
            seen.add(alias.name)
            if statement.module in ("tf_byteps", "tf_byteps.ops"):
                continue  # a module, which may need JAX; `dispatch` has tf_byteps.jax's, too
            home = importlib.import_module(statement.module)
            assert getattr(tf_byteps, alias.name) is getattr(home, alias.name)
    assert sorted(seen) == dir(tf_byteps)
    assert stub.with_name("py.typed").exists()


@pytest.mark.parametrize("name", tf_byteps._OF_TWO_FRAMEWORKS)
def test_a_name_of_two_frameworks_is_typed_as_tensorflows(name):
    assert tf_byteps._HOMES[name] == "tf_byteps.dispatch"
    assert getattr(tf_byteps, name).__module__ == "tf_byteps.dispatch"
    assert callable(getattr(tf_byteps.ops, name))


def test_only_public_names_are_listed():
    assert "importlib" not in dir(tf_byteps) and "typing" not in dir(tf_byteps)
    assert "tf" not in tf_byteps.keras.callbacks.__all__


def places():
    tf_byteps.init()
    return [tf_byteps.cross_rank(), tf_byteps.cross_size(), tf_byteps.is_homogeneous()]


def test_places_among_machines():
    def env(label):
        return {"BYTEPS_HOST_ID": "b" if label == "worker 2" else "a"}

    found = run_workers(places, workers=3, servers=1, env=env, timeout=120)
    assert found == [[0, 2, False], [0, 1, False], [1, 2, False]]
