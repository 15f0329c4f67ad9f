"""Exchanges of small objects: do all workers mean to do the same thing?"""

import json
from typing import Any

import numpy as np

from tf_byteps.exchange import host


def gather_objects(name: str, value: Any) -> list[Any]:
    """Exchanges a JSON value with all workers.

    Also while a function is traced: it runs outside of the trace.

    Args:
        name: the exchange's name, equal on all workers.
        value: what `json` can write.

    Returns:
        A list with each worker's value, in rank order.
    """
    text = np.frombuffer(json.dumps(value, sort_keys=True).encode(), np.uint8)
    sizes = host.gather(np.array([len(text)], np.int64), f"{name}/sizes")
    joined = host.gather(text, name).tobytes()
    ends = np.cumsum(sizes)
    return [json.loads(joined[end - size : end]) for size, end in zip(sizes, ends)]
