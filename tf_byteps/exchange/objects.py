"""Python objects that travel between workers, as data only: nothing that is received is executed.

One object is one self-contained message: a header, JSON for the structure, and the bytes of its
arrays (npy) and byte strings behind it. See protocol rule 5.
"""

import io
import json
import struct
import sys
from typing import Any

import numpy as np

from tf_byteps import runtime
from tf_byteps.exchange import host, names
from tf_byteps.exchange.arguments import checked_root_rank
from tf_byteps.exchange.process_sets import ProcessSet, scope_of

_HEADER = struct.Struct("<QQ")  # bytes of the JSON, bytes of the message
_LARGEST_INTEGER = 2**63
# By the library that an object is of.
_HINTS = {"tensorflow": "; pass its .numpy()", "jaxlib": "; pass numpy.asarray of it"}


def broadcast_object(
    obj: Any,
    root_rank: int = 0,
    session: None = None,
    name: str | None = None,
    process_set: ProcessSet | None = None,
) -> Any:
    """Gives every worker the root's object. In eager code only.

    Args:
        obj: on the root: `None`, booleans, numbers, strings, bytes, NumPy arrays and scalars, and
            lists, tuples and dicts of those. Elsewhere it is not looked at.
        root_rank: an integer, the rank of the worker whose object counts.
        session: must be `None`: there are no sessions in TensorFlow 2.
        name: a string, the same on all workers. Default: derived from the place of the call.
        process_set: a `tf_byteps.ProcessSet` of the workers that exchange objects, of which this is
            one. Default: all workers. `root_rank` is a rank of the job.

    Returns:
        An equal object, made of the same types.

    Raises:
        TypeError: the root's object holds something else, for example an instance of a class. All
            workers raise it. Objects are never pickled.
        ValueError: `root_rank` is not a rank of the job, or not of the process set.

    Example:

    >>> settings = tf_byteps.broadcast_object({"epoch": 3, "seeds": np.arange(4)}, root_rank=0)
    """
    _refuse_session(session)
    root_rank = checked_root_rank(root_rank, process_set)
    message = _message(obj) if runtime.rank() == root_rank else b""
    (received,) = _exchange(message, _name(name, "broadcast_object", process_set))
    return _decoded(received, root_rank)


def allgather_object(
    obj: Any, session: None = None, name: str | None = None, process_set: ProcessSet | None = None
) -> list[Any]:
    """Gives every worker the objects of all. In eager code only.

    Args:
        obj: what `broadcast_object` takes.
        session: see `broadcast_object`.
        name: see `broadcast_object`.
        process_set: see `broadcast_object`.

    Returns:
        A list of one object for each worker, in rank order.

    Raises:
        TypeError: the object of some worker cannot be sent. All workers raise it.

    Example:

    >>> lengths = tf_byteps.allgather_object({"rows": len(dataset)})
    """
    _refuse_session(session)
    messages = _exchange(_message(obj), _name(name, "allgather_object", process_set))
    ranks = range(len(messages)) if process_set is None else process_set.ranks
    return [_decoded(message, rank) for rank, message in zip(ranks, messages, strict=True)]


def _refuse_session(session: None) -> None:
    if session is not None:
        raise NotImplementedError("sessions belong to TensorFlow 1: leave session out")


def _name(name: str | None, kind: str, process_set: ProcessSet | None) -> str:
    its = names.checked(name) if name else f"{kind}@{names.call_site()}"
    return names.in_scope(scope_of(process_set), its)


def _exchange(message: bytes, name: str) -> list[bytes]:
    """The messages of all workers that sent one, in rank order."""
    tensorflow = sys.modules.get("tensorflow")
    if tensorflow is not None and not tensorflow.executing_eagerly():
        raise RuntimeError("objects can be exchanged in eager code only, not in a tf.function")
    rest = host.gather(np.frombuffer(message, np.uint8), name).tobytes()
    messages = []
    while rest:
        length = _HEADER.unpack_from(rest)[1]
        messages.append(rest[:length])
        rest = rest[length:]
    return messages


def _message(obj: Any) -> bytes:
    """An object as bytes; what cannot be sent as a message that says so, for all workers to see."""
    blobs = []
    try:
        content: dict[str, Any] = {"object": _to_json(obj, "object", blobs)}
    except TypeError as error:
        content, blobs = {"error": str(error)}, []
    content["lengths"] = [len(blob) for blob in blobs]
    text = json.dumps(content).encode()
    length = _HEADER.size + len(text) + sum(content["lengths"])
    return b"".join([_HEADER.pack(len(text), length), text, *blobs])


def _decoded(message: bytes, rank: int) -> Any:
    text_bytes, _ = _HEADER.unpack_from(message)
    end = _HEADER.size + text_bytes
    content = json.loads(message[_HEADER.size : end])
    if "error" in content:
        raise TypeError(f"the object of worker {rank} cannot be sent: {content['error']}")
    blobs = []
    for length in content["lengths"]:
        blobs.append(message[end : end + length])
        end += length
    return _from_json(content["object"], blobs)


def _to_json(value: Any, path: str, blobs: list[bytes]) -> Any:
    """What JSON can write. Lists of it stand for themselves; other types are tagged dicts."""
    if value is None or isinstance(value, (bool, float, str)):
        return value
    if type(value) is int and -_LARGEST_INTEGER <= value < _LARGEST_INTEGER:
        return value
    if isinstance(value, (np.ndarray, np.generic)) and value.dtype.kind in "biufc":
        return {"npy": _add(blobs, _npy(value)), "scalar": isinstance(value, np.generic)}
    if isinstance(value, (bytes, bytearray)):
        return {"bytes": _add(blobs, bytes(value))}
    if type(value) is list:
        return [_to_json(item, f"{path}[{i}]", blobs) for i, item in enumerate(value)]
    if type(value) is tuple:
        return {"tuple": [_to_json(item, f"{path}[{i}]", blobs) for i, item in enumerate(value)]}
    if type(value) is dict:
        items = value.items()
        return {
            "dict": [
                [
                    _to_json(key, f"a key of {path}", blobs),
                    _to_json(item, f"{path}[{key!r}]", blobs),
                ]
                for key, item in items
            ]
        }
    hint = _HINTS.get(type(value).__module__.partition(".")[0], "")
    raise TypeError(
        f"{path} is {type(value).__module__}.{type(value).__qualname__}; only None, booleans, "
        "integers of 64 bits, floats, strings, bytes, NumPy arrays of numbers, and lists, tuples "
        f"and dicts of those can be sent{hint}"
    )


def _from_json(value: Any, blobs: list[bytes]) -> Any:
    if isinstance(value, list):
        return [_from_json(item, blobs) for item in value]
    if not isinstance(value, dict):
        return value
    if "npy" in value:
        array = np.load(io.BytesIO(blobs[value["npy"]]), allow_pickle=False)
        return array[()] if value["scalar"] else array
    if "bytes" in value:
        return blobs[value["bytes"]]
    if "tuple" in value:
        return tuple(_from_json(item, blobs) for item in value["tuple"])
    return {_from_json(key, blobs): _from_json(item, blobs) for key, item in value["dict"]}


def _add(blobs: list[bytes], blob: bytes) -> int:
    blobs.append(blob)
    return len(blobs) - 1


def _npy(value: Any) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, np.asarray(value), allow_pickle=False)
    return buffer.getvalue()
