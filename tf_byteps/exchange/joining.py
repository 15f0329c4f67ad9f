"""`join`: a worker that has no more data lets the others go on without it."""

import sys

from tf_byteps import _engine, runtime
from tf_byteps.exchange import host, leaving

_LOOK_SECONDS = 0.2  # between two, signals are handled


def join() -> int:
    """Says that this worker has no more data, and waits until all have said so. A collective.

    For loops in which workers have different numbers of batches. Until all have called it, others'
    sums and averages go on with zeros in place of this worker's tensors; an average is still
    divided by the number of all workers. Other exchanges, as `allgather`, `broadcast`, `Min` and
    those of rows that are gathered, are an error on those who call them meanwhile. `Model.fit`
    with `BytePSStrategy` needs no `join`: it trains on the rest of the data.

    Returns:
        The rank of the worker that was the last to call it.

    Raises:
        BytePSError: `tf_byteps.init()` was not called.
        RuntimeError: it is called in a `tf.function`.
        tf.errors.FailedPreconditionError: an exchange of this worker is in flight, a worker has
            left the job without a call of `join`, or several GPUs of a host are workers. Without
            TensorFlow an `ExchangeError`.
        tf.errors.UnavailableError: a worker was lost.

    Example:

    ```python
    for batch in batches_of_this_worker:
        train_step(batch)  # has push_pull, or a DistributedGradientTape
    last = tf_byteps.join()
    tf_byteps.broadcast_variables(model.variables, root_rank=last)
    ```
    """
    runtime.rank()  # raises before `init`
    tensorflow = sys.modules.get("tensorflow")
    if tensorflow is not None and not tensorflow.executing_eagerly():
        raise RuntimeError("join waits for other workers: call it in eager code, after the loop")
    with host.errors_as_raised():
        _engine.begin_join()
        while (last := _engine.wait_for_join(_LOOK_SECONDS)) is None:
            pass
    # Those who came later have more rounds behind them.
    leaving.go_on_together()
    return last
