"""Whether tf_byteps was tested with the functions of Keras and TensorFlow that it changes.

`recorded_signatures` has their parameters in all tested versions. Another may have others. Where a
replacement cannot take them, using it is an error; else a warning says what may be wrong.
"""

import inspect
import logging
import sys
from collections.abc import Callable, Iterable
from typing import Any

from tf_byteps.errors import BytePSError
from tf_byteps.recorded_signatures import SIGNATURES

# As in pyproject.toml.
SUPPORTED = {"keras": "keras>=3.12,<3.16", "tensorflow": "tensorflow>=2.20,<2.22"}

# What the functions of a module do that replace others.
PURPOSES = {
    "tf_byteps.gradients.row_updates": "updates of the rows of embeddings",
    "tf_byteps.gradients.table_optimizers": "tables with an optimizer of their own",
    "tf_byteps.keras.hooks": "fit with a DistributedOptimizer",
    "tf_byteps.keras.jax.training": "the first step of a DistributedOptimizer",
    "tf_byteps.keras.leaving": "leaving on SIGTERM",
    "tf_byteps.ops.input_waits": "the counted samples",
    "tf_byteps.ops.library": "saved functions and errors of exchanges",
    "tf_byteps.strategy.fit.callbacks": "files that only rank 0 writes",
    "tf_byteps.strategy.fit.deferred_logs": "the logs of a step",
    "tf_byteps.strategy.fit.loggers": "logs that only rank 0 writes",
    "tf_byteps.strategy.fit.orbax": "checkpoints of OrbaxCheckpoint",
    "tf_byteps.strategy.fit.dataset_files": "datasets that several workers save",
    "tf_byteps.strategy.fit.model_files": "models that several workers save",
    "tf_byteps.strategy.fit.writers": "files that only rank 0 writes",
    "tf_byteps.strategy.keras2": "the refusal of tf_keras",
    "tf_byteps.strategy.keras_hooks.gradients": "the sums of gradients",
    "tf_byteps.strategy.keras_hooks.input": "the workers' shares of the data",
    "tf_byteps.strategy.keras_hooks.training": "fit, evaluate and predict with several workers",
    "tf_byteps.strategy.jax.batches": "the workers' shares of the data",
    "tf_byteps.strategy.jax.cross_step": "cross_step",
    "tf_byteps.strategy.jax.empty_epochs": "epochs without a batch",
    "tf_byteps.strategy.jax.gradients": "the sums of gradients",
    "tf_byteps.strategy.jax.trainer": "fit, evaluate and predict with several workers",
    "tf_byteps.strategy.saving.checkpoints": "checkpoints that several workers save",
    "tf_byteps.strategy.saving.saved_models": "SavedModels that several workers save",
    "tf_byteps.strategy.step.attention": "flash_attention",
    "tf_byteps.strategy.step.branches": "branches of a step",
    "tf_byteps.strategy.step.embeddings": "lookups in embeddings",
    "tf_byteps.strategy.step.float8": "scales of float8",
    "tf_byteps.strategy.step.loops": "training loops without strategy.run",
    "tf_byteps.strategy.step.losses": "the weights of losses and metrics",
    "tf_byteps.strategy.step.noise": "random numbers of replicas",
    "tf_byteps.strategy.step.tapes": "what a step does with gradients",
    "tf_byteps.timeline.python_steps": "Python's steps in timelines",
    "tf_byteps.training.progress_bar": "the progress bar of rank 0",
    "tf_byteps.training.traces": "functions that a step calls, or that outlast a job's workers",
}

_logger = logging.getLogger("tf_byteps")


def name_of(owner: Any, name: str) -> str:
    """The short name of an attribute: "Model.export", "framework.random_seed.get_seed".

    Args:
        owner: the class or module that has it.
        name: the attribute's.
    """
    if isinstance(owner, type):
        return f"{owner.__name__}.{name}"
    return ".".join([*owner.__name__.split(".")[-2:], name])


def form_of(function: Callable[..., Any]) -> str:
    """The parameters of a function, without annotations and with `None` for each default."""
    signature = inspect.signature(function)
    return str(
        inspect.Signature(
            [
                each.replace(
                    annotation=each.empty,
                    default=each.empty if each.default is each.empty else None,
                )
                for each in signature.parameters.values()
            ]
        )
    )


def check(changes: Iterable[tuple[Any, str, Callable[..., Any]]]) -> None:
    """Compares functions that are about to be replaced with the recorded ones.

    Logs one warning that names all that have other parameters.

    Args:
        changes: a list of an owner, the name of its attribute, and what will replace that.

    Raises:
        BytePSError: there is no such function, or the replacement cannot be called in its place.
    """
    changed: dict[str, list[str]] = {}
    purposes = []
    for owner, name, replacement in changes:
        what, library = name_of(owner, name), _library_of(owner)
        original = getattr(owner, name, None)
        purpose = PURPOSES.get(replacement.__module__, "training")
        if original is None or not _can_replace(replacement, original):
            found = "does not exist" if original is None else f"takes {form_of(original)}"
            raise BytePSError(
                f"{_version_of(library)} does not fit this tf_byteps: {what} {found}, without "
                f"which {purpose} would be wrong; install {SUPPORTED[library]}"
            )
        recorded = SIGNATURES.get(what)
        if recorded is not None and form_of(original) not in recorded:
            changed.setdefault(library, []).append(f"{what}{form_of(original)}")
            purposes.append(purpose)
    for library, functions in changed.items():
        _logger.warning(
            "tf_byteps was not tested with %s, which has other parameters of %s. This may be "
            "wrong: %s. Install %s",
            _version_of(library),
            ", ".join(functions),
            ", ".join(dict.fromkeys(purposes)),
            SUPPORTED[library],
        )


def _can_replace(replacement: Callable[..., Any], original: Callable[..., Any]) -> bool:
    """Whether all calls of a function can be made of its replacement, whose first argument is the
    function itself."""
    own = inspect.signature(replacement)
    by_place: list[Any] = [original]
    by_name: dict[str, Any] = {}
    for each in inspect.signature(original).parameters.values():
        if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD):
            by_place.append(each)
        elif each.kind is each.KEYWORD_ONLY:
            by_name[each.name] = each
    try:
        own.bind(*by_place, **by_name)
    except TypeError:
        return False
    return True


def _library_of(owner: Any) -> str:
    module = owner.__module__ if isinstance(owner, type) else owner.__name__
    return "tensorflow" if module.startswith("tensorflow.") else "keras"


def _version_of(library: str) -> str:
    version = getattr(sys.modules.get(library), "__version__", "of an unknown version")
    return f"{'Keras' if library == 'keras' else 'TensorFlow'} {version}"
