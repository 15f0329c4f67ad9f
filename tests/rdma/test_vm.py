"""The RDMA Van over real verbs, in a virtual machine with Soft-RoCE (vm.sh): `make test-rdma`."""

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


def _inside(tests, *options, timeout=600):
    """Runs tests of inside.py in the machine; returns what they printed."""
    test = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", "-s", "-k", tests]
    return _run(
        [*test, str(pathlib.Path(__file__).with_name("inside.py"))], *options, timeout=timeout
    )


def test_declarations_are_those_of_libibverbs():
    headers = _CACHE / "guest" / "usr" / "include"
    source = ROOT / "tests" / "rdma" / "verbs_layout.cc"
    options = ["-std=c++17", "-Wno-invalid-offsetof", "-fsyntax-only", "-I.", "-isystem", headers]
    subprocess.run(["g++", *options, source], cwd=ROOT, check=True, timeout=100)


def test_conformance():
    binary = _BINARIES / "conformance_test"
    assert binary.exists(), "make test-rdma builds it"
    output = _run([str(binary), "--gtest_filter=*/Rdma:*/RdmaWithSecret"])
    passed = re.search(r"\[  PASSED  \] (\d+) tests", output)
    assert passed and int(passed[1]) >= 36 and "SKIPPED" not in output


def test_goodput_is_that_of_a_bare_loop():
    output = _run([str(_BINARIES / "rdma" / "goodput_test")])
    assert "SKIPPED" not in output


def test_jobs_between_two_devices():
    _inside("sums or killed or check", "--two", "--memory", "3000")


def test_sums_with_lost_packets():
    _inside("sums", "--two", "--netem", "loss 1%")


def test_sums_with_small_packets():
    _inside("sums", "--two", "--mtu", "1500")


def test_training():
    _inside("training", "--memory", "6000", timeout=1200)
