"""bpslaunch --compile-cache: what XLA compiled is there when the program starts again."""

import sys

import pytest

from tests.launch import compiled_training
from tf_byteps.errors import ConfigError
from tf_byteps.launch import compile_cache

_OF_GPUS = "--tf_xla_persistent_cache_device_types=GPU"
_PRINT_FLAGS = "import os; print(os.environ['TF_XLA_FLAGS'])"


def test_flags_of_the_user_stay():
    flags = compile_cache.flags("--tf_xla_clustering_debug", "/a/folder")
    expected = "--tf_xla_clustering_debug --tf_xla_persistent_cache_directory=/a/folder"
    assert flags == f"{expected} {_OF_GPUS}"


def test_what_flags_cannot_hold_is_refused():
    with pytest.raises(ConfigError, match="give one of them only"):
        compile_cache.flags("--tf_xla_persistent_cache_directory=/a", "/b")
    with pytest.raises(ConfigError, match="white space"):
        compile_cache.flags("", "/a folder")


@pytest.mark.parametrize("given", [(), ("--env", "TF_XLA_FLAGS=--tf_xla_clustering_debug")])
def test_workers_get_the_flags(launch, tmp_path, given):
    options = ("-np", "2", "--compile-cache", str(tmp_path), *given)
    running = launch(*options, sys.executable, "-c", _PRINT_FLAGS)
    assert running.wait() == 0, running.err
    first = "--tf_xla_clustering_debug " if given else ""
    expected = f"{first}--tf_xla_persistent_cache_directory={tmp_path} {_OF_GPUS}\n"
    for rank in range(2):
        assert f"[worker {rank}] {expected}" in running.out


def test_two_folders_are_a_usage_error(launch):
    flags = "TF_XLA_FLAGS=--tf_xla_persistent_cache_directory=/elsewhere"
    running = launch("-np", "1", "--compile-cache", "here", "--env", flags, "true")
    assert running.wait() == 2
    assert "--compile-cache is here, and TF_XLA_FLAGS is" in running.err


@pytest.mark.slow
@pytest.mark.time_limit(300)
def test_the_second_start_does_not_compile(launch, tmp_path):
    """On a CPU, for which the folder can be used, too, though bpslaunch does not ask for it."""
    flags = compile_cache.flags("", str(tmp_path / "cache")).replace("=GPU", "=CPU")
    command = (sys.executable, compiled_training.__file__)
    seen, shown = [], []
    for _ in range(2):
        running = launch("-np", "2", "--env", f"TF_XLA_FLAGS={flags}", *command)
        assert running.wait(120) == 0, running.err
        seen.append({path.name: path.stat().st_mtime_ns for path in (tmp_path / "cache").iterdir()})
        shown.append(sorted(line for line in running.out.splitlines() if "weights" in line))
    assert seen[0] and seen[1] == seen[0]
    assert len(shown[0]) == 2 and shown[1] == shown[0]
