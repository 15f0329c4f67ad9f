"""`Model.fit` with a quorum: a worker is killed, another one comes, and nobody goes back."""

import json

import pytest

from tests import workers
from tests.elastic import quorum_fit_programs, quorum_jobs
from tests.elastic.quorum_fit_programs import DIES_IN_EPOCH

_HOWS = [
    "slow",
    pytest.param("average", marks=pytest.mark.slow),
    pytest.param("diloco", marks=pytest.mark.slow),
    pytest.param("warmup", marks=pytest.mark.slow),
    pytest.param("saves", marks=pytest.mark.slow),
]


@pytest.fixture(scope="module", params=_HOWS)
def job(request, tmp_path_factory):
    """What the workers have written, by number, and the output of the job."""
    folder = tmp_path_factory.mktemp("fits")
    program = "tests.elastic.quorum_fit_programs"
    output = quorum_jobs.run(program, folder, request.param, timeout=280)
    records = {
        int(path.stem.rpartition("-")[2]): json.loads(path.read_text())
        for path in folder.glob("record-*.json")
    }
    return records, output, request.param


@pytest.mark.time_limit(300)
def test_all_end_with_the_same_weights(job):
    records, output, _ = job
    assert sorted(records) == [0, 1, 2, 3], output
    assert records[0]["weights"] == records[1]["weights"] == records[3]["weights"]
    assert "going on without the worker that is lost" in output
    assert "going back" not in output
    assert "where an epoch ended" not in output  # weights that differ


def test_no_step_of_those_that_stay_is_lost(job):
    """All their rows are in the global weights; of the killed one's those of its rounds."""
    records, _, how = job
    ended = [records[rank] for rank in (0, 1, 3)]
    for fragment, done in enumerate(records[0]["rows done"]):
        assert all(each["rows done"][fragment] == done for each in ended)
        expected = sum(each["rows"] for each in ended) + records[2]["in rounds"][fragment]
        assert done == expected, how
    for rank in (0, 1):
        assert records[rank]["iterations"] == records[rank]["steps"]


def test_a_local_step_is_traced_once_for_each_number_of_workers(job):
    records, _, how = job
    for rank in (0, 1):
        sizes = records[rank]["traced"]
        assert set(sizes) == {2, 3}
        if how != "warmup":  # in which the first steps of three workers were other ones
            # The newcomer may come in the epoch in which the two have traced theirs.
            assert sizes == sorted(sizes, reverse=True), "three workers again"


def test_steps_that_exchange_are_traced_for_other_workers():
    found = workers.run(quorum_fit_programs.__file__, ["exchange_in_steps"], 2)
    assert list(found["exchange_in_steps"]) == [[False, True]] * 2


def test_they_go_on_in_the_same_epoch(job):
    records, _, how = job
    for rank in (0, 1):
        epochs = records[rank]["epochs"]
        assert epochs == list(range(len(epochs)))  # each ends once
        again = [begin for begin in records[rank]["begins"] if begin[2] == 2]
        epoch, batch, _ = again[0]
        assert epoch >= DIES_IN_EPOCH and (batch > 0 or epoch > DIES_IN_EPOCH), how
        sizes = [size for *_, size in records[rank]["begins"]]
        assert sizes[0] == sizes[-1] == 3
    # All agree on the batch, the newcomer too.
    assert records[3]["begins"][0] in records[0]["begins"]
    assert records[3]["begins"][0] in records[1]["begins"]
    assert records[0]["losses"][-1] == records[1]["losses"][-1] == records[3]["losses"][-1]
    assert records[0]["losses"][-1] < records[0]["losses"][0]
