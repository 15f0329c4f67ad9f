"""JAX, as elastic jobs need it, and the state of its trees."""

import copy
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tf_byteps import _engine, runtime
from tf_byteps.elastic.interface import VariableFramework
from tf_byteps.elastic.states import ObjectState
from tf_byteps.errors import ExchangeError
from tf_byteps.exchange import host
from tf_byteps.exchange.object_gather import gather_objects
from tf_byteps.exchange.objects import broadcast_object
from tf_byteps.exchange.variable_lists import check_lists
from tf_byteps.jax import errors, new_workers
from tf_byteps.jax.host_copies import copies_on_host
from tf_byteps.xla_library import end_failed_programs

_WHAT = "arrays of the elastic state"


class Jax(VariableFramework):
    """JAX's part of an elastic job."""

    def code_of(self, error: Exception) -> str:
        if not isinstance(error, jax.errors.JaxRuntimeError):
            return ""
        end_failed_programs()
        found = errors.of(error)
        return "UNKNOWN" if found is None else found.code

    def lost(self, sentence: str) -> Exception:
        return ExchangeError(sentence, "UNAVAILABLE")

    def forget_programs(self) -> None:
        new_workers.changed()

    def before_reading(self, model: Any) -> None:
        model.jax_state_sync()  # within `fit` the variables are empty

    def values(self, variables: Sequence[Any]) -> list[Any]:
        copies = copies_on_host([variable.value for variable in variables])
        errors.raise_late_failure()
        return [np.asarray(value) for value in copies]

    def synchronize(self, variables: Sequence[Any]) -> None:
        from tf_byteps.strategy.jax import initial_values

        named = [(variable.path, variable) for variable in variables]
        initial_values.broadcast("variables of the elastic state", named)


class JaxState(ObjectState):
    """Trees of JAX's arrays, and Python values: they are attributes of this object.

    A value in which there is a `jax.Array` is a tree: parameters, an optimizer's state, keys of
    random numbers. Its structure and the shapes of its arrays are the same on all workers, and stay
    so; new arrays may take the place of the old. Everything else is a value as in `ObjectState`.

    Args:
        **values: names and first values.

    Raises:
        ValueError: a value has the name of something that a state has already.

    Example:

    ```python
    state = tf_byteps.elastic.JaxState(weights=weights, slots=optimizer.init(weights), step=0)

    @tf_byteps.elastic.run
    def train(state):
        while state.step < 1000:
            batch = batches(state.step, tf_byteps.rank(), tf_byteps.size())
            state.weights, state.slots = train_step(state.weights, state.slots, batch)
            state.step += 1
            if state.step % 100 == 0:
                state.commit()

    train(state)
    ```
    """

    def save(self) -> None:
        """See `State.save`.

        Raises:
            ExchangeError: a process is lost. The state that was saved last stays.
        """
        saved = _copied(self._values())
        # A GPU goes on when an exchange fails. Now the engine knows.
        errors.raise_late_failure()
        if failure := _engine.worker_failure():
            raise ExchangeError(failure, "UNAVAILABLE")
        self._saved = saved

    def restore(self) -> None:
        """See `State.restore`."""
        is_copy = lambda leaf: isinstance(leaf, _Copy)  # noqa: E731
        self._set(
            jax.tree.map(
                lambda leaf: leaf.array() if is_copy(leaf) else copy.deepcopy(leaf),
                self._saved,
                is_leaf=is_copy,
            )
        )

    def sync(self) -> None:
        """See `State.sync`.

        Raises:
            ValueError: on all workers, if their trees differ in more than values.
        """
        if runtime.size() > 1:
            self._take_first_workers()
        self.save()

    def _take_first_workers(self) -> None:
        values = self._values()
        trees = {name: value for name, value in values.items() if _has_arrays(value)}
        flat, structure = jax.tree.flatten_with_path(trees)
        arrays = {jax.tree_util.keystr(path): leaf for path, leaf in flat if _is_array(leaf)}
        check_lists(
            _WHAT, gather_objects(f"initial values/{_WHAT}", [_key(*each) for each in flat])
        )
        bits = [np.asarray(_bits(leaf)) for leaf in arrays.values()]
        names = [f"elastic/arrays{path}" for path in arrays]
        received = dict(zip(arrays, host.copy_all(bits, names, "broadcast"), strict=True))
        others = [None if _is_array(leaf) else leaf for _, leaf in flat]
        plain = {name: value for name, value in values.items() if name not in trees}
        plain, others = broadcast_object([plain, others], 0, name="elastic/values")
        self._set(plain)
        if runtime.rank() == 0:
            return
        leaves = []
        for (path, leaf), other in zip(flat, others, strict=True):
            if _is_array(leaf):
                other = _Copy(received[jax.tree_util.keystr(path)], leaf).array()
            leaves.append(other)
        self._set(jax.tree.unflatten(structure, leaves))


class _Copy:
    """An array's bits in host memory.

    Args:
        bits: an array of NumPy's.
        like: the array of JAX's whose kind and place it has.
    """

    def __init__(self, bits: Any, like: jax.Array) -> None:
        self._bits = bits
        self._kind = _kind(like)

    def array(self) -> jax.Array:
        """An array of JAX's with its values."""
        given = self._kind
        array = jax.device_put(np.asarray(self._bits), given.sharding)
        return (
            array if given.of_keys is None else jax.random.wrap_key_data(array, impl=given.of_keys)
        )


class _Kind(NamedTuple):
    """Where an array is, if it was put there; and what makes its random keys, if it has some."""

    sharding: Any
    of_keys: Any


def _kind(array: jax.Array) -> _Kind:
    is_keys = jnp.issubdtype(array.dtype, jax.dtypes.prng_key)
    return _Kind(
        array.sharding if array.committed else None, jax.random.key_impl(array) if is_keys else None
    )


def _bits(array: jax.Array) -> jax.Array:
    is_keys = jnp.issubdtype(array.dtype, jax.dtypes.prng_key)
    return jax.random.key_data(array) if is_keys else array


def _key(path: Any, leaf: Any) -> str:
    """By what a leaf must be alike on all workers."""
    where = jax.tree_util.keystr(path)
    return f"{where} {leaf.dtype} {list(leaf.shape)}" if _is_array(leaf) else where


def _is_array(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array)


def _has_arrays(value: Any) -> bool:
    return any(map(_is_array, jax.tree.leaves(value)))


def _copied(values: Any) -> Any:
    """The same values, whose arrays are in host memory."""
    leaves, structure = jax.tree.flatten(values)
    places = [place for place, leaf in enumerate(leaves) if _is_array(leaf)]
    copies = copies_on_host([_bits(leaves[place]) for place in places])
    copied = [None if _is_array(leaf) else copy.deepcopy(leaf) for leaf in leaves]
    for place, bits in zip(places, copies, strict=True):
        copied[place] = _Copy(bits, leaves[place])
    return jax.tree.unflatten(structure, copied)
