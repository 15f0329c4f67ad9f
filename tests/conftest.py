"""Rules for all tests: a time limit, warnings are errors, and no process is left behind."""

import ctypes
import pathlib
import signal
import sys
import time

import psutil
import pytest

from tests import fork_server

_HERE = pathlib.Path(__file__).resolve().parent
# Helpers can be imported by their own name, too, also where a test's folder is not a package.
sys.path.append(str(_HERE))

# Trainings of minutes, and what is shown in short elsewhere: `make test-long` has them.
_LONG = [
    _HERE / name
    for name in (
        "strategy/test_accumulation.py",
        "strategy/test_kept_state.py",
        "strategy/test_cross_step.py",
        "foreign/test_programs.py",
        "strategy/test_compressed_cross_step.py",
        "strategy/test_compressed_training.py",
        "strategy/test_losses.py",
        "strategy/test_narrow_gradients.py",
        "strategy/test_parity.py",
        "strategy/test_residuals.py",
        "strategy/test_compiled_cross_step.py",
        "strategy/test_overlap.py",
    )
]
# What `make test` shows with other models, settings or numbers of workers; in `make test-extended`.
_EXTENDED = [
    _HERE / name
    for name in (
        "elastic/test_parts.py",
        "jax/test_backup_workers.py",
        "jax/test_checkpoints.py",
        "jax/test_keras_fit.py",
        "launch/test_gpus.py",
        "launch/test_progress_bar.py",
        "launch/test_trial.py",
        "metrics/test_dashboard.py",
        "ops/test_compressed_rows.py",
        "ops/test_compression.py",
        "ops/test_low_rank.py",
        "strategy/test_caches.py",
        "strategy/test_checkpoints.py",
        "strategy/test_data.py",
        "strategy/test_deferred_logs.py",
        "strategy/test_keras_distribution.py",
        "strategy/test_lengths.py",
        "strategy/test_local_steps.py",
        "strategy/test_row_optimizers.py",
        "strategy/test_saving.py",
        "strategy/test_shuffle.py",
        "strategy/test_staleness.py",
        "strategy/test_state.py",
        "strategy/test_state_table.py",
        "strategy/test_stragglers.py",
        "tables/test_mixed_precision.py",
        "timeline/test_elastic.py",
        "timeline/test_input.py",
    )
]
# They come first: at the end none is left for one process.
_FIRST = [
    _HERE / "conformance/test_rows.py",
    _HERE / "property/test_seeds.py",
    *_LONG,
    _HERE / "jax/test_keras_fit.py",
    _HERE / "strategy/test_checkpoints.py",
    _HERE / "strategy/test_strategy.py",
    _HERE / "tables/test_tables.py",
    _HERE / "tables/test_on_servers.py",
    _HERE / "tables/test_own_optimizers.py",
    _HERE / "tables/test_vocabularies.py",
    _HERE / "examples/test_examples.py",
]

_TIME_LIMIT_SECONDS = 240
# What has been told to end may take this long beside a build.
_END_SECONDS = 10
_PR_SET_CHILD_SUBREAPER = 36


def pytest_configure(config):
    config.addinivalue_line("markers", "time_limit(seconds): instead of the usual limit of a test")
    config.addinivalue_line("filterwarnings", "error")
    for package in ("tensorflow", "keras", "google", "h5py", "numpy", "flatbuffers", "gast", "ray"):
        config.addinivalue_line("filterwarnings", f"default:::{package}")
        config.addinivalue_line("filterwarnings", f"default:::{package}\\..*")
    # Shells let what runs in the background ignore Ctrl-C, and so would the processes of tests.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # Orphans of a test's processes become children of this one, which can then find them.
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    fork_server.allow()


@pytest.hookimpl(tryfirst=True)  # before pytest selects by marks
def pytest_collection_modifyitems(items):
    """Marks what is not in `make test`, and puts what takes long first."""
    for item in items:
        if item.path in _LONG:
            item.add_marker("long")
        if item.path in _EXTENDED:
            item.add_marker("extended")
    items.sort(key=lambda item: _FIRST.index(item.path) if item.path in _FIRST else len(_FIRST))


def pytest_unconfigure():
    fork_server.stop()


@pytest.fixture(autouse=True)
def time_limit(request):
    """No test hangs: after its time it fails, at the line where it stands."""
    marker = request.node.get_closest_marker("time_limit")
    seconds = marker.args[0] if marker else _TIME_LIMIT_SECONDS

    def fail(*_):
        pytest.fail(f"not done after {seconds} s")

    previous = signal.signal(signal.SIGALRM, fail)
    signal.alarm(seconds)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, previous)


@pytest.fixture(autouse=True)
def no_process_left():
    """Fails a test that leaves processes behind, and ends them."""
    before = {process.pid for process in psutil.Process().children(recursive=True)}
    yield
    deadline = time.monotonic() + _END_SECONDS
    while left := _living_children(before):
        if time.monotonic() > deadline:
            break
        time.sleep(0.05)
    for process in left:
        process.kill()
    _reap_orphans()
    assert not left, f"processes are left: {left}"


def _living_children(known):
    living = []
    known = {*known, *fork_server.pids()}
    for process in psutil.Process().children(recursive=True):
        try:
            if process.pid not in known and process.status() != psutil.STATUS_ZOMBIE:
                living.append(process)
        except psutil.NoSuchProcess:
            continue
    return living


def _reap_orphans():
    """Zombies that came to this process as orphans; subprocess reaps those that it started."""
    for process in psutil.Process().children():
        try:
            if process.status() == psutil.STATUS_ZOMBIE:
                process.wait(timeout=0.1)
        except (psutil.NoSuchProcess, psutil.TimeoutExpired):
            continue
