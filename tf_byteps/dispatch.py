"""The exchanges of the framework that an array is of; no other one is imported."""

from typing import Any

_JAX = ("jax", "jaxlib")


def push_pull(tensor: Any, *args: Any, **kwargs: Any) -> Any:
    """Combines a tensor elementwise over all workers: see `tf_byteps.ops.push_pull`.

    Args:
        tensor: of TensorFlow, or what converts to one; or a `jax.Array`, which
            `tf_byteps.jax.push_pull` takes.
        *args: as there.
        **kwargs: as there.

    Returns:
        As there.

    Raises:
        TypeError: as there, and all else.

    Example:

    >>> tf_byteps.push_pull(tf.constant([1.0, 2.0]) * tf_byteps.rank(), op=tf_byteps.Sum)
    """
    return _home_of(tensor).push_pull(tensor, *args, **kwargs)


def broadcast(tensor: Any, *args: Any, **kwargs: Any) -> Any:
    """Gives every worker the root's tensor: see `tf_byteps.ops.broadcast`.

    Args:
        tensor: see `push_pull`.
        *args: as there.
        **kwargs: as there.

    Returns:
        As there.

    Raises:
        TypeError: as there, and all else.

    Example:

    >>> weights.assign(tf_byteps.broadcast(weights, root_rank=0, name="weights"))
    """
    return _home_of(tensor).broadcast(tensor, *args, **kwargs)


def gather(tensor: Any, *args: Any, **kwargs: Any) -> Any:
    """Concatenates the workers' tensors along axis 0: see `tf_byteps.ops.gather`.

    Args:
        tensor: see `push_pull`.
        *args: as there.
        **kwargs: as there.

    Returns:
        As there.

    Raises:
        TypeError: as there, and all else.

    Example:

    >>> all_losses = tf_byteps.gather(tf.reshape(loss, [1]))
    """
    return _home_of(tensor).gather(tensor, *args, **kwargs)


allgather = gather


def _home_of(tensor: Any) -> Any:
    one = tensor[0] if isinstance(tensor, (list, tuple)) and tensor else tensor
    if type(one).__module__.partition(".")[0] in _JAX:
        import tf_byteps.jax

        return tf_byteps.jax
    import tf_byteps.ops

    return tf_byteps.ops
