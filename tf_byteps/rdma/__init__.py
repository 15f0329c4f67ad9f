"""RDMA on this machine: what there is, what is missing, and whether two hosts reach each other.

    python -m tf_byteps.rdma                       # devices, ports, limits; what is missing
    python -m tf_byteps.rdma --serve               # on one host
    python -m tf_byteps.rdma --connect HOST        # on the other: bandwidth and latency

Training needs none of this: the engine speaks to libibverbs itself (docs/rdma.md). The check
between hosts does it by pyverbs, rdma-core's own Python module, so that a network that does not
work can be told from a tf_byteps that does not.
"""

from tf_byteps.rdma.pyverbs_module import get_device_list

__all__ = ["get_device_list"]
