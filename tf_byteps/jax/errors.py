"""What JAX raises when an exchange has failed, as an error of tf_byteps."""

import contextlib
import re
from collections.abc import Callable, Iterator

import jax

from tf_byteps import _engine
from tf_byteps.errors import ExchangeError
from tf_byteps.xla_library import end_failed_programs, wait_for_exchanges

# JAX puts the engine's code before what it says.
_ERROR = re.compile(r"^(?:[\w.]+: )?([A-Z_]+): (.*)", re.DOTALL)


def of(error: Exception) -> ExchangeError | None:
    """The engine's error that JAX's has inside; None: it is another one.

    Args:
        error: what a function that was compiled has raised.
    """
    found = _ERROR.match(str(error))
    code, sentence = found.groups() if found else ("INTERNAL", str(error))
    failure = _engine.worker_failure()
    if failure and failure in sentence:
        return ExchangeError(failure, code)
    if sentence.startswith('tensor "'):
        return ExchangeError(sentence, code)
    return None


def raise_late_failure() -> None:
    """Blocks until what programs have begun on a GPU has ended.

    Raises:
        ExchangeError: an exchange has failed when the GPU waited for it already.
    """
    code, _, sentence = wait_for_exchanges().partition(": ")
    if code:
        raise ExchangeError(sentence, code)


@contextlib.contextmanager
def raised_again(
    kinds: tuple[type[Exception], ...], failure: Callable[[Exception], ExchangeError | None]
) -> Iterator[None]:
    """Raises errors of exchanges again, also those that are known only when a GPU has ended.

    Args:
        kinds: those that may be about an exchange. A ValueError is, if a program got an operand
            that an earlier one has not made, since an exchange failed.
        failure: gives the error to raise; None: this one is about no exchange and passes.
    """
    try:
        yield
        raise_late_failure()
    except kinds as error:
        if isinstance(error, ValueError) and not (_ERROR.match(str(error)) and of(error)):
            raise
        end_failed_programs()
        found = failure(error)
        if found is None:
            raise
        raise found from None


@contextlib.contextmanager
def exchange_errors() -> Iterator[None]:
    """Makes JAX's errors of exchanges in compiled functions those of tf_byteps: one sentence.

    JAX computes in the background, so an error comes where a result is used. Use results within
    the context, or wait for them there with `jax.block_until_ready`. On a GPU, the end of the
    context waits for what its functions have begun: only then is it known whether it failed.

    Raises:
        ExchangeError: an exchange has failed. All other errors pass.

    Example:

    >>> with tf_byteps.jax.exchange_errors():
    ...     state = jax.block_until_ready(step(state))
    """
    with raised_again((jax.errors.JaxRuntimeError, ValueError), of):
        yield
