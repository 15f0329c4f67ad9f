"""The four libraries in tf_byteps/: how they find each other; a process has one engine."""

import os
import re
import subprocess
import sys
import sysconfig

import pytest

import tf_byteps

_FOLDER = os.path.dirname(tf_byteps.__file__)
_ENGINE = "libtf_byteps_engine.so"
_PYTHON_MODULE = "_engine" + sysconfig.get_config_var("EXT_SUFFIX")
_OPS = "_ops.so"
_XLA = "libtf_byteps_xla.so"


def _dynamic_section(library):
    """A dict of lists: the values of NEEDED, SONAME, RUNPATH, RPATH."""
    output = subprocess.run(
        ["readelf", "--dynamic", "--wide", os.path.join(_FOLDER, library)],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    ).stdout
    entries = {}
    for tag, value in re.findall(r"\((NEEDED|SONAME|RUNPATH|RPATH)\).*\[(.*)\]", output):
        entries.setdefault(tag, []).append(value)
    return entries


def test_engine_needs_nothing_but_the_system():
    entries = _dynamic_section(_ENGINE)
    assert entries["SONAME"] == [_ENGINE]
    assert all(re.match(r"(libstdc\+\+|libm|libgcc_s|libc|ld-linux)", n) for n in entries["NEEDED"])
    assert "RUNPATH" not in entries and "RPATH" not in entries


@pytest.mark.parametrize("library", [_PYTHON_MODULE, _OPS, _XLA])
def test_users_find_the_engine_beside_them(library):
    entries = _dynamic_section(library)
    assert _ENGINE in entries["NEEDED"]
    assert entries["RUNPATH"] == ["$ORIGIN"]
    assert "RPATH" not in entries


def test_only_the_operations_need_tensorflow():
    needs = {
        library: any("tensorflow" in name for name in _dynamic_section(library)["NEEDED"])
        for library in [_ENGINE, _PYTHON_MODULE, _OPS, _XLA]
    }
    assert needs == {_ENGINE: False, _PYTHON_MODULE: False, _OPS: True, _XLA: False}


def test_xlas_calls_are_exported_and_nothing_of_xla_is():
    lines = subprocess.run(
        ["nm", "--dynamic", "--defined-only", "--demangle", os.path.join(_FOLDER, _XLA)],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    ).stdout.splitlines()
    exported = {line.split(maxsplit=2)[2] for line in lines}
    calls = {name for name in exported if name.startswith("byteps_")}
    of_gpus = ("start_detached", "wait", "wait_for_exchanges", "end_failed_programs")
    assert calls == {
        f"byteps_{call}_on_{platform}"
        for call in ("run", "start", "barrier", "done", "rank_info")
        for platform in ("host", "cuda")
    } | {f"byteps_{call}_on_cuda" for call in of_gpus}
    assert not [name for name in exported if name.startswith("xla::")]


def _run_python(code):
    result = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "3"},
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout.strip()


def test_python_module_loads_without_tensorflow():
    code = """
import sys
import tf_byteps._engine
print([name for name in sys.modules if name.split(".")[0] in ("tensorflow", "keras")])
"""
    assert _run_python(code) == "[]"


def test_module_and_operations_share_one_engine():
    # The module starts the engine; the operation finds it running only if it is the same one.
    code = """
import tensorflow as tf
import tf_byteps
import tf_byteps._engine as engine
tf_byteps.init()
assert engine.worker_running()
result = tf_byteps.push_pull(tf.constant([1.0, 2.0]), op=tf_byteps.Sum, name="shared")
assert result.numpy().tolist() == [1.0, 2.0], result
maps = {line.split()[-1] for line in open("/proc/self/maps") if "tf_byteps_engine" in line}
tf_byteps.shutdown()
print(*maps)
"""
    loaded = _run_python(code).splitlines()[-1]
    assert os.path.realpath(loaded) == os.path.realpath(os.path.join(_FOLDER, _ENGINE))
