"""Which GPU a worker gets; none of it needs one."""

import pytest

from tf_byteps.gpus import assigned_gpu, beside_gpu, devices_in_words, own_gpu, visible_gpus


@pytest.fixture
def devices(tmp_path):
    """A folder of device files as on a machine with four GPUs."""
    folder = tmp_path / "dev"
    folder.mkdir()
    for name in ("nvidia0", "nvidia1", "nvidia2", "nvidia3", "nvidiactl", "nvidia-uvm", "null"):
        (folder / name).touch()
    return folder


def worker(local_rank, local_size, **variables):
    return {
        "DMLC_ROLE": "worker",
        "BYTEPS_LOCAL_RANK": str(local_rank),
        "BYTEPS_LOCAL_SIZE": str(local_size),
        **variables,
    }


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (None, ["0", "1", "2", "3"]),
        ("", []),
        ("2,3", ["2", "3"]),
        (" 3 , 1", ["3", "1"]),
        ("-1", []),
        ("1,-1,2", ["1"]),
        ("GPU-8932f937,MIG-7", ["GPU-8932f937", "MIG-7"]),
    ],
)
def test_visible_gpus(devices, given, expected):
    environment = {} if given is None else {"CUDA_VISIBLE_DEVICES": given}
    assert visible_gpus(environment, devices) == expected


def test_a_machine_without_gpus(tmp_path):
    assert visible_gpus({}, tmp_path) == []
    assert assigned_gpu(worker(0, 2), tmp_path) == ({}, "")


def test_the_gpu_of_a_worker(devices, tmp_path_factory):
    assert own_gpu({}, devices) == "0"
    assert own_gpu({"CUDA_VISIBLE_DEVICES": "3"}, devices) == "3"
    assert own_gpu({"CUDA_VISIBLE_DEVICES": "-1"}, devices) is None
    assert own_gpu({"CUDA_VISIBLE_DEVICES": "3"}, tmp_path_factory.mktemp("none")) is None


def test_each_local_rank_gets_its_own(devices):
    for local_rank in range(4):
        expected = {"CUDA_VISIBLE_DEVICES": str(local_rank)}, ""
        assert assigned_gpu(worker(local_rank, 4), devices) == expected
    chosen = worker(1, 2, CUDA_VISIBLE_DEVICES="2,3")
    assert assigned_gpu(chosen, devices) == ({"CUDA_VISIBLE_DEVICES": "3"}, "")


def test_too_many_workers_share_and_are_told_once(devices):
    variables, remark = assigned_gpu(worker(0, 6), devices)
    assert variables == {"CUDA_VISIBLE_DEVICES": "0"}
    assert "6 workers share 4 GPU(s)" in remark
    assert assigned_gpu(worker(5, 6), devices) == ({"CUDA_VISIBLE_DEVICES": "1"}, "")


def test_only_workers_of_a_job_get_one(devices):
    assert assigned_gpu({}, devices) == ({}, "")
    assert assigned_gpu({"DMLC_ROLE": "server"}, devices) == ({}, "")
    assert assigned_gpu({**worker(0, 1), "DMLC_ROLE": "scheduler"}, devices) == ({}, "")


def test_bpslaunch_gives_them_out(launch):
    script = "echo $BYTEPS_LOCAL_RANK has $CUDA_VISIBLE_DEVICES"
    running = launch("-np", "2", "sh", "-c", script, CUDA_VISIBLE_DEVICES="5,7")
    assert running.wait() == 0, running.err
    assert "[worker 0] 0 has 5\n" in running.out
    assert "[worker 1] 1 has 7\n" in running.out


def test_bpslaunch_says_that_workers_share(launch):
    running = launch("-np", "2", "true", CUDA_VISIBLE_DEVICES="5")
    assert running.wait() == 0, running.err
    has_none = devices_in_words({}) == "CPU"
    said = "but this machine has no GPU" if has_none else "2 workers share 1 GPU(s)"
    assert running.err.count(said) == 1


@pytest.fixture
def machine(tmp_path):
    """What a machine with two GPUs beside two nodes of processors says of them."""
    for number, bus in enumerate(("0000:0F:00.0", "0000:4E:00.0")):
        gpu = tmp_path / "gpus" / bus
        gpu.mkdir(parents=True)
        (gpu / "information").write_text(f"Model: NVIDIA H200\nGPU UUID: GPU-aaa{number}\n")
        device = tmp_path / "pci" / bus.lower()
        device.mkdir(parents=True)
        (device / "numa_node").write_text(f"{number}\n")
    return tmp_path


def found(name):
    return f"/usr/bin/{name}"


@pytest.mark.parametrize(("gpu", "node"), [("0", 0), ("1", 1), ("GPU-aaa1", 1)])
def test_a_worker_runs_beside_its_gpu(machine, gpu, node):
    command = beside_gpu(gpu, found, machine / "gpus", machine / "pci")
    assert command == ["/usr/bin/numactl", f"--cpunodebind={node}", f"--preferred={node}", "--"]


def test_where_nothing_is_known_of_nodes_workers_run_anywhere(machine, tmp_path):
    def beside(gpu, find=found, driver="gpus"):
        return beside_gpu(gpu, find, machine / driver, machine / "pci")

    assert beside("0", find=lambda name: None) == []
    assert beside("2") == [] and beside("MIG-7") == [] and beside("GPU-bbb") == []
    assert beside("0", driver="none") == []
    (machine / "pci" / "0000:0f:00.0" / "numa_node").write_text("-1\n")
    assert beside("0") == []


def test_gpus_that_are_asked_for_and_not_there(tmp_path, devices):
    asked = {"CUDA_VISIBLE_DEVICES": "0,1"}
    _, remark = assigned_gpu(worker(0, 2, **asked), tmp_path)
    expected = "WARNING CUDA_VISIBLE_DEVICES is 0,1, but this machine has no GPU"
    assert remark.startswith(expected)
    assert assigned_gpu(worker(1, 2, **asked), tmp_path)[1] == ""
    assert assigned_gpu(worker(0, 2, **asked), devices)[1] == ""


def test_devices_in_words(tmp_path, devices):
    assert devices_in_words({"CUDA_VISIBLE_DEVICES": "0,1"}, tmp_path) == "CPU"
    assert devices_in_words({"CUDA_VISIBLE_DEVICES": "0"}, devices) == "1 GPU"
    assert devices_in_words({}, devices) == "4 GPUs"
