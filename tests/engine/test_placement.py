"""How well the coordinator's placement loads the links of a cluster, for real models."""

import pytest

from benchmarks.models import FLOAT_BYTES, MODELS, optimal_seconds
from tf_byteps import _engine

# (worker hosts, additional server hosts, least share of the optimum)
CLUSTERS = [(4, 2, 0.99), (8, 4, 0.99), (8, 8, 0.99), (16, 8, 0.99), (32, 16, 0.95)]


def busiest_link(model, workers, servers):
    """Bytes that one NIC carries in a step, each way; with servers beside all workers, too."""
    worker_hosts = [f"w{host}" for host in range(workers)]
    server_hosts = [f"s{host}" for host in range(servers)] + worker_hosts
    placed = _engine.place([shape for _, shape in model.tensors], worker_hosts, server_hosts)
    owned = [0] * len(server_hosts)
    for parts in placed:
        for elements, server in parts:
            owned[server] += elements * FLOAT_BYTES
    assert sum(owned) == model.bytes
    additional, beside_workers = owned[:servers], owned[servers:]
    # A server receives each of its bytes from all workers on other hosts and answers them; a worker
    # sends what its own host does not own.
    links = [workers * own for own in additional]
    links += [(model.bytes - own) + (workers - 1) * own for own in beside_workers]
    return max(links)


@pytest.mark.parametrize("workers, servers, least", CLUSTERS)
@pytest.mark.parametrize("name", ["resnet50", "vgg16", "bert_large"])
def test_links_are_loaded_alike(name, workers, servers, least):
    model = MODELS[name]()
    optimum = optimal_seconds(workers, servers, model.bytes, 1)
    assert optimum / busiest_link(model, workers, servers) >= least


def test_fixed_parts_have_the_length_that_was_asked_for():
    [[*parts]] = _engine.place([(2500,)], ["a", "b"], ["c", "d"], part_bytes=4000)
    assert [elements for elements, _ in parts] == [1000, 1000, 500]
    assert {server for _, server in parts} == {0, 1}
