"""`python -m tf_byteps.rdma` on a machine with or without RDMA, and both generations of pyverbs."""

import subprocess
import sys
import types

import pytest

from tf_byteps.errors import BytePSError
from tf_byteps.rdma import pyverbs_module, report

_GID = "0000:0000:0000:0000:0000:ffff:0a00:0001"


@pytest.fixture
def kernel_files(tmp_path):
    """A device with a port that is up and one that is down, as the kernel shows them."""
    for number, state in ((1, "4: ACTIVE"), (2, "1: DOWN")):
        port = tmp_path / "mlx5_0" / "ports" / str(number)
        for folder in ("gids", "gid_attrs/types", "gid_attrs/ndevs"):
            (port / folder).mkdir(parents=True)
        (port / "state").write_text(state + "\n")
        (port / "rate").write_text("100 Gb/sec (4X EDR)\n")
        (port / "link_layer").write_text("Ethernet\n")
        (port / "gids" / "0").write_text(_GID + "\n")
        (port / "gids" / "1").write_text("0000:0000:0000:0000:0000:0000:0000:0000\n")
        (port / "gid_attrs" / "types" / "0").write_text("RoCE v2\n")
        (port / "gid_attrs" / "ndevs" / "0").write_text("eth0\n")
    return tmp_path


def test_devices(kernel_files):
    [first, second] = report.devices(kernel_files)["mlx5_0"]
    assert first == {
        "port": 1,
        "state": "ACTIVE",
        "rate": "100 Gb/sec (4X EDR)",
        "link_layer": "Ethernet",
        "interfaces": ["eth0"],
        "gids": [(0, _GID, "RoCE v2")],
    }
    assert second["state"] == "DOWN"


def test_what_is_missing(kernel_files, monkeypatch):
    assert not any("port is active" in text for text in report.missing(kernel_files))
    (kernel_files / "mlx5_0" / "ports" / "1" / "state").write_text("2: INIT\n")
    assert any("No port is active" in text for text in report.missing(kernel_files))
    assert any("no RDMA support" in text for text in report.missing(kernel_files / "none"))
    monkeypatch.setattr(report.resource, "getrlimit", lambda _: (65536, 65536))
    assert any("Only 64 KB of memory" in text for text in report.missing(kernel_files))


def test_the_command_says_whether_rdma_can_be_used():
    result = subprocess.run(
        [sys.executable, "-m", "tf_byteps.rdma"], capture_output=True, text=True, timeout=60
    )
    usable = result.stdout.rstrip().endswith("RDMA can be used")
    assert result.returncode == (0 if usable else 1)
    assert ("missing:" in result.stdout) != usable


class PyverbsRDMAError(Exception):
    pass


class _Generation:
    """Modules with pyverbs' names."""

    def __init__(self, monkeypatch, enums, get_device_list):
        names = ("addr", "cq", "mr", "pd", "qp", "wr", enums)
        for name in names:
            monkeypatch.setitem(sys.modules, f"pyverbs.{name}", types.ModuleType(f"pyverbs.{name}"))
        package = types.ModuleType("pyverbs")
        package.__path__ = []
        package.__spec__ = types.SimpleNamespace(name="pyverbs")
        monkeypatch.setitem(sys.modules, "pyverbs", package)
        device = types.ModuleType("pyverbs.device")
        device.get_device_list = get_device_list
        monkeypatch.setitem(sys.modules, "pyverbs.device", device)
        errors = types.ModuleType("pyverbs.pyverbs_error")
        errors.PyverbsError = PyverbsRDMAError
        monkeypatch.setitem(sys.modules, "pyverbs.pyverbs_error", errors)


@pytest.mark.parametrize("enums", ["enums", "libibverbs_enums"])
def test_both_generations_of_pyverbs(monkeypatch, enums):
    _Generation(monkeypatch, enums, lambda: [types.SimpleNamespace(name=b"mlx5_0")])
    assert pyverbs_module.Verbs().generation == f"pyverbs.{enums}"
    assert pyverbs_module.get_device_list() == ["mlx5_0"]


def test_a_kernel_without_rdma_is_an_error(monkeypatch):
    def fail():
        raise PyverbsRDMAError("Failed to get devices list")

    _Generation(monkeypatch, "enums", fail)
    with pytest.raises(BytePSError, match="no RDMA support .Failed to get devices list"):
        pyverbs_module.get_device_list()


def test_a_missing_pyverbs_is_an_error(monkeypatch):
    monkeypatch.setattr(pyverbs_module, "_find_pyverbs", lambda: None)
    monkeypatch.setitem(sys.modules, "pyverbs", None)
    with pytest.raises(BytePSError, match="apt-get install python3-pyverbs"):
        pyverbs_module.get_device_list()
