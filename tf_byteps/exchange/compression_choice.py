"""Compression that a function of the user's chooses for each variable."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tf_byteps.exchange.compression import AnyCompressor, resolve
from tf_byteps.exchange.compressor import Compressor

if TYPE_CHECKING:
    from tf_byteps.types import Variable

# What gradients take as `compression`: one for all, or a function of the variable.
CompressionChoice = AnyCompressor | Callable[[Any], AnyCompressor | None]
ResolvedChoice = type[Compressor] | Compressor | Callable[[Any], AnyCompressor | None]


def resolve_choice(given: CompressionChoice | None) -> ResolvedChoice:
    """What gradients are compressed with: a compressor for all, or a function that chooses.

    Args:
        given: what `resolve` takes, or a function of a variable that returns such.

    Returns:
        What has `compress` and `decompress`; or the function.

    Raises:
        ValueError: there is no compressor of this name, or no such option.
        TypeError: it is something else.
    """
    if is_function(given):
        return given  # pyright: ignore[reportReturnType]
    return resolve(given)  # pyright: ignore[reportArgumentType]


def is_function(given: object) -> bool:
    """Whether it is a function that chooses. A class is none, and neither is another library's
    compressor that happens to be callable."""
    return callable(given) and not isinstance(given, type) and not hasattr(given, "compress")


def of_variables(
    choice: ResolvedChoice, variables: Sequence[Any]
) -> list[type[Compressor] | Compressor]:
    """The compressor of each variable's gradient.

    Args:
        choice: what `resolve_choice` returned.
        variables: `keras.Variable`, `tf.Variable` or `tf.Tensor`: what the function is called with.

    Returns:
        The list of compressors.

    Raises:
        ValueError: the function named a compressor, or an option, that does not exist.
        TypeError: it returned something else.
    """
    return [_of_variable(choice, variable) for variable in variables]


def _of_variable(choice: Any, variable: Variable | None) -> type[Compressor] | Compressor:
    if not is_function(choice):
        return choice
    answer = choice(variable)
    try:
        return resolve(answer)
    except (TypeError, ValueError) as error:
        raise type(error)(
            f"the function given as compression returned {answer!r} for {_described(variable)}: "
            f"{error}"
        ) from None


def _described(variable: Variable | None) -> str:
    dtype = getattr(variable.dtype, "name", variable.dtype)
    # An eager tensor's name raises AttributeError.
    name = getattr(variable, "path", "") or getattr(variable, "name", "a tensor")
    return f"{name!r} of shape {tuple(variable.shape)} and dtype {dtype}"
