"""Initial values from worker 0, without trusting that all workers create the same variables
(protocol rule 28).

Broadcasting each variable when it is created, as `MultiWorkerMirroredStrategy` does, hangs as soon
as one worker creates one variable more. So variables are only noted when they are created. Before
the first step the workers compare their lists; if they differ, all of them raise an error that
names the difference, and nothing was sent in vain.
"""

import collections
import gc
import weakref

import tensorflow as tf

from tf_byteps import runtime
from tf_byteps.ops import broadcast
from tf_byteps.strategy import bits
from tf_byteps.strategy.agreement import gather_objects
from tf_byteps.strategy.variables import OnReadVariable, own_value, set_own_value


class InitialValues:
    """The variables of one strategy that worker 0's values have not reached yet."""

    def __init__(self):
        self._created = []  # weak references, in order of creation

    def created(self, variable):
        """Notes a variable. Keras's metrics are left out: they start at zero everywhere."""
        synchronization = getattr(variable, "synchronization", None)
        is_metric = synchronization == tf.VariableSynchronization.ON_READ
        if not is_metric or isinstance(variable, OnReadVariable):
            self._created.append(weakref.ref(variable))

    def synchronize_created(self):
        """Synchronizes what was created since the last call; without anything new it does not
        communicate.

        The variables' paths are not known here, so that they are told apart by name and order of
        creation.
        """
        if runtime.size() == 1:
            return
        created, self._created = self._created, []
        if created:
            # What nobody holds any more, but refers to itself, is otherwise freed on some workers
            # earlier than on others, and their lists differ.
            gc.collect()
        alive = [reference() for reference in created]
        uninitialized = [variable for variable in alive if _is_uninitialized(variable)]
        # A tf.function that creates variables is traced first, then initializes them, then is
        # traced again.
        self._created = [weakref.ref(variable) for variable in uninitialized]
        ready = [
            variable
            for variable in alive
            if variable is not None and all(variable is not other for other in uninitialized)
        ]
        if ready:
            synchronize("variables created in the scope", [(v.name, v) for v in ready])

    def synchronize_model(self, model):
        """Synchronizes all variables of a Keras model and its optimizer, and whatever else was
        created meanwhile."""
        if runtime.size() == 1:
            return
        variables = list(model.variables)
        if getattr(model, "optimizer", None) is not None:
            variables += model.optimizer.variables
        named = [(variable.path, variable.value) for variable in variables]
        known = {id(variable) for _, variable in named}
        self._created = [r for r in self._created if r() is not None and id(r()) not in known]
        synchronize("variables of the model and its optimizer", named)
        self.synchronize_created()


def _is_uninitialized(variable):
    if variable is None:
        return False
    with tf.init_scope():
        try:
            return not bool(tf.raw_ops.VarIsInitializedOp(resource=variable.handle))
        except (
            TypeError,
            ValueError,
            AttributeError,
        ):  # its handle belongs to a graph that is still being traced
            return True


def synchronize(what, named_variables, root_rank=0):
    """Sets variables to one worker's values, in one group of broadcasts.

    Args:
        what: a few words for error messages, equal on all workers.
        named_variables: a list of pairs of a name and a `tf.Variable`.
        root_rank: the rank of the worker whose values count.

    Raises:
        ValueError: the workers' lists differ.
    """
    keyed = keyed_variables(named_variables)
    check_lists(what, gather_objects(f"initial values/{what}", list(keyed)))
    if keyed:
        with tf.init_scope():
            exchange = tf.function(lambda: broadcast_all(keyed, root_rank), autograph=False)
            exchange.get_concrete_function()()  # used once: a plain call would warn of retracing


def check_lists(what, lists):
    """Raises ValueError if the workers' lists of keys, in rank order, are not all the same."""
    for rank, other in enumerate(lists):
        if sorted(other) != sorted(lists[0]):
            raise ValueError(_difference(what, rank, other, lists[0]))


def keyed_variables(named_variables):
    """Key -> variable. The key says name, dtype and shape, and which one it is of those that agree
    in all of these."""
    counts = collections.Counter()
    keyed = {}
    for name, variable in named_variables:
        key = f"{name} {variable.dtype.name}{list(variable.shape)}"
        counts[key] += 1
        keyed[key if counts[key] == 1 else f"{key} #{counts[key]}"] = variable
    return keyed


def _difference(what, rank, other, first):
    missing = ", ".join(sorted(set(first) - set(other))) or "nothing"
    extra = ", ".join(sorted(set(other) - set(first))) or "nothing"
    return (
        f"the workers differ in the {what}: worker {rank} lacks {missing} and has {extra} that "
        "worker 0 does not have. All workers must build the same model and optimizer"
    )


def broadcast_all(keyed, root_rank):
    """Sets each variable to the root's value. `keyed` is what `keyed_variables` returned."""
    values = [tf.identity(own_value(variable)) for variable in keyed.values()]
    for (key, variable), value in zip(keyed.items(), values, strict=True):
        received = broadcast(bits.encode(value), root_rank, name=f"initial value/{key}")
        set_own_value(variable, bits.decode(received, value.dtype))
