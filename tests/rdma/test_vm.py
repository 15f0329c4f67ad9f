"""The RDMA Van over real verbs, in a virtual machine with Soft-RoCE (vm.sh): `make test-rdma`.

The C++ tests run on Debian's own kernel and two processors, under qemu. Whole jobs need many
times as long there, mostly to import what they need; they run in User Mode Linux, where that can be
built.
"""

import os
import pathlib
import re
import subprocess
import sys

import pytest

from tests.cluster import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.time_limit(1300)]

_VM = ROOT / "tests" / "rdma" / "vm.sh"
_BINARIES = ROOT / "build" / "bazel-bin" / "cc" / "van"
_CACHE = pathlib.Path(os.environ.get("RDMA_VM_CACHE", ROOT / "build" / "rdma-vm"))
_SKIPPED = 77


@pytest.fixture(scope="module", autouse=True)
def machine():
    """Fetches the packages once; skips with the reason where that cannot be."""
    result = subprocess.run([_VM, "--prepare"], capture_output=True, text=True, timeout=600)
    if result.returncode == _SKIPPED:
        pytest.skip(result.stderr.strip().splitlines()[-1])
    assert result.returncode == 0, result.stderr


@pytest.fixture(scope="module")
def for_jobs():
    """The options of a machine for whole jobs."""
    result = subprocess.run(
        [_VM, "--uml", "--prepare"], capture_output=True, text=True, timeout=1800
    )
    print(result.stderr)
    assert result.returncode in (0, _SKIPPED), result.stderr
    return ["--uml"] if result.returncode == 0 else []


def _run(command, *options, timeout=600):
    """Runs a command in the machine; returns what it printed."""
    result = subprocess.run(
        [_VM, *options, "--timeout", str(timeout), "--", *command],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout + 60,
    )
    print(result.stdout)
    assert result.returncode == 0, f"exit code {result.returncode}"
    return result.stdout


def _inside(tests, *options, file="inside.py", timeout=1100):
    """Runs tests of a file in the machine; returns what they printed."""
    test = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
        "-q",
        "-s",
        "--durations=9",
        "-k",
        tests,
    ]
    return _run([*test, str(pathlib.Path(__file__).with_name(file))], *options, timeout=timeout)


def test_declarations_are_those_of_libibverbs():
    headers = _CACHE / "guest" / "usr" / "include"
    source = ROOT / "tests" / "rdma" / "verbs_layout.cc"
    options = ["-std=c++17", "-Wno-invalid-offsetof", "-fsyntax-only", "-I.", "-isystem", headers]
    subprocess.run(["g++", *options, source], cwd=ROOT, check=True, timeout=100)


@pytest.mark.parametrize(
    "name, least", [("conformance", 14), ("conformance_order", 8), ("conformance_connections", 30)]
)
def test_conformance(name, least):
    binary = _BINARIES / f"{name}_test"
    assert binary.exists(), "make test-rdma builds it"
    output = _run([str(binary), "--gtest_filter=*/Rdma:*/RdmaWithSecret"])
    passed = re.search(r"\[  PASSED  \] (\d+) tests", output)
    # Tests of what goes over TCP in any case are skipped.
    assert passed and int(passed[1]) >= least and "no RDMA device" not in output


def test_a_peer_by_pyverbs(for_jobs):
    """The wire, checked by an implementation that has no line in common with the engine's."""
    peer = f"{sys.executable} {_VM.with_name('pyverbs_peer.py')} PORT rxe0"
    binary = str(_BINARIES / "rdma" / "peer_test")
    output = _run([binary], *for_jobs, "--env", f"BYTEPS_TEST_PEER={peer}")
    assert "35 frames came back" in output and "SKIPPED" not in output
    assert "4 malformed frames ended their connections" in output


def test_goodput_is_that_of_a_bare_loop():
    output = _run([str(_BINARIES / "rdma" / "goodput_test"), "--gtest_filter=*BareLoop"])
    assert "SKIPPED" not in output


def test_user_time_is_no_more_than_tcps():
    binary = str(_BINARIES / "rdma" / "goodput_test")
    output = _run([binary, "--gtest_filter=*MoreUserTimeThanTcp"], "--exact")
    assert "SKIPPED" not in output


def test_the_vans_own_user_time_is_no_more_than_tcps():
    """Here and not in the machine, with a device of memory."""
    options = ["--gtest_also_run_disabled_tests", "--gtest_filter=*DISABLED_UserTime*"]
    binary = _BINARIES / "rdma" / "goodput_test"
    result = subprocess.run([binary, *options], capture_output=True, text=True, timeout=300)
    print(result.stdout)
    assert result.returncode == 0, result.stderr


def test_jobs_between_two_devices(for_jobs):
    _inside("not training", *for_jobs, "--two", "--memory", "3000")


def test_sums_with_lost_packets(for_jobs):
    _inside("sums", *for_jobs, "--two", "--netem", "loss 1%")


def test_sums_with_small_packets(for_jobs):
    _inside("sums", *for_jobs, "--two", "--mtu", "1500")


def test_broken_networks(for_jobs):
    """Packets lost for a while or for ever, a cable pulled, a port that is down."""
    _inside("", *for_jobs, "--two", file="broken.py")


def test_training(for_jobs):
    _inside("training", *for_jobs, "--memory", "6000")
