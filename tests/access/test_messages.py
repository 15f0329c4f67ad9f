"""Messages of rendezvous, mutated: each is understood or refused, nothing else happens."""

import dataclasses
import json
import pathlib
import random
import subprocess
import sys

import pytest

import tf_byteps
from tests.cluster import ROOT
from tf_byteps.config import Config
from tf_byteps.errors import RendezvousError
from tf_byteps.rendezvous import messages
from tf_byteps.rendezvous.messages import (
    Address,
    Assigned,
    Book,
    Changed,
    Dismissed,
    Done,
    Join,
    Leave,
    Ready,
)
from tf_byteps.rendezvous.participant import Refusal
from tf_byteps.rendezvous.roster import Roster

_VALUES = [None, True, 0, -1, 2**63, 1.5, "", "x" * 1000, [], [[]], {}, {"a": 1}, "\u0000"]


def _seeds():
    address = Address("10.0.0.1", 9000)
    book = Book("job", 0, ["a", "b"], ["a"], [address], [-1], address, {"part_bytes": 1.0})
    join = Join("id", "0.1", "worker", "host", None, 0, 2, None, 1, "a", address, {"x": 1.0})
    member = [Changed(1, "others will join"), Done("3"), Dismissed("all is done")]
    return [join, Assigned("worker", 0, book), Ready("id", "server"), Leave("id"), *member]


def _paths(value, path=()):
    yield path
    items = value.items() if isinstance(value, dict) else []
    if isinstance(value, list):
        items = enumerate(value)
    for key, item in items:
        yield from _paths(item, (*path, key))


def _changed(fields, path, value):
    if not path:
        return value
    copy = fields.copy()
    copy[path[0]] = _changed(copy[path[0]], path[1:], value)
    return copy


def test_any_field_with_any_value():
    refused = understood = 0
    for seed in _seeds():
        fields = json.loads(messages.encode(seed))
        for path in _paths(fields):
            for value in _VALUES:
                try:
                    messages.decode(json.dumps(_changed(fields, path, value)).encode())
                    understood += 1
                except RendezvousError as error:
                    refused += 1
                    assert len(str(error)) < 5000
    assert refused > understood > 0


def test_any_bytes():
    generator = random.Random(7)
    for seed in _seeds():
        text = messages.encode(seed)
        for _ in range(2000):
            mutated = bytearray(text)
            for _ in range(generator.randrange(1, 8)):
                mutated[generator.randrange(len(mutated))] = generator.randrange(256)
            try:
                decoded = messages.decode(bytes(mutated[: generator.randrange(len(mutated) + 1)]))
            except RendezvousError:
                continue
            assert dataclasses.is_dataclass(decoded)


def test_deep_nesting_is_refused():
    for depth in (100, 100_000):
        try:
            messages.decode(b'{"kind": ' + b"[" * depth + b"]" * depth + b', "version": 1}')
        except RendezvousError:
            continue
        raise AssertionError("understood")


def _roster():
    return Roster(None, None, 1, {}, Config().shared_values())


def _join(**changes):
    address = Address("10.0.0.1", 9000)
    version = tf_byteps.__version__
    join = Join("id", version, "worker", "host", None, 0, 2, None, 1, "a", address, {})
    return dataclasses.replace(join, **changes)


def test_the_tests_request_is_admitted():
    assert _roster().admit(_join(), b"", 0.0).rank is None
    assert _roster().admit(_join(options={"part_bytes": 65536, "deterministic": 1}), b"", 0.0)


@pytest.mark.parametrize(
    "changes",
    [
        {"size": 0},
        {"size": -1},
        {"size": 2**62},
        {"rank": -1},
        {"rank": 2**62},
        {"server_id": -1},
        {"num_servers": -1},
        {"role": "scheduler"},
        {"role": "x"},
        {"process": "x" * 2000},
        {"host_id": "x" * 2000},
        {"participant": "x" * 2000},
        {"server_endpoint": Address("a", 0)},
        {"server_endpoint": Address("a", 70000)},
        {"server_endpoint": Address("a" * 2000, 1)},
        {"options": {"part_bytes": 2**70}},
        {"options": {"part_bytes": -1}},
        {"options": {"part_bytes": 1.5}},
        {"options": {"heartbeat_timeout": float("nan")}},
        {"options": {"heartbeat_timeout": float("inf")}},
        {"options": {"no such option": 1}},
    ],
    ids=str,
)
def test_a_request_that_no_process_makes_is_refused(changes):
    roster = _roster()
    with pytest.raises(Refusal):
        roster.admit(_join(**changes), b"", 0.0)
    assert not roster.participants


def test_nothing_from_the_network_is_unpickled_by_servers_and_schedulers():
    """Nothing that they import opens pickles (protocol rule 5)."""
    program = (
        "import sys, tf_byteps.server, tf_byteps.scheduler, tf_byteps.launch.main\n"
        "print(*(m.__file__ for n, m in sys.modules.items() if n.startswith('tf_byteps')))"
    )
    files = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT
    )
    imported = {pathlib.Path(file) for file in files.stdout.split() if file.endswith(".py")}
    assert ROOT / "tf_byteps" / "job.py" in imported
    for path in imported | {*(ROOT / "tf_byteps" / "rendezvous").rglob("*.py")}:
        assert "pickle" not in path.read_text().replace("never pickled", ""), path
