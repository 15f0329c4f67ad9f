"""BytePS for TensorFlow 2 and Keras 3: data-parallel training through summation servers.

`import tf_byteps` does not import TensorFlow; a name that needs it does, when it is first used.
`__init__.pyi` lists the names.
"""

import ast
import importlib
import pathlib
from typing import Any

__version__ = "0.2.0"

_WITH_TENSORFLOW = ("local_steps", "ops", "training")
# What is refused here, with a sentence that says what to use instead.
_UNSUPPORTED = "tf_byteps.exchange.unsupported"
# Of these the stub has TensorFlow's, which has a signature; tensors may be of JAX, too.
_OF_TWO_FRAMEWORKS = ("allgather", "broadcast", "gather", "push_pull")


def _homes() -> dict[str, str]:
    """Where each name of the stub is defined; a module in itself."""
    stub = pathlib.Path(__file__).with_suffix(".pyi").read_text()
    homes = {
        alias.name: node.module or ""
        for node in ast.parse(stub).body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    modules = {name: f"tf_byteps.{name}" for name, home in homes.items() if home == "tf_byteps"}
    return homes | modules | dict.fromkeys(_OF_TWO_FRAMEWORKS, "tf_byteps.dispatch")


_HOMES = _homes()
_MODULES = [name for name, home in _HOMES.items() if home == f"tf_byteps.{name}"]
__all__ = [  # pyright: ignore[reportUnsupportedDunderAll]
    "__version__",
    *(name for name in _HOMES if name not in _MODULES and _HOMES[name] != _UNSUPPORTED),
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'tf_byteps' has no attribute {name!r}")
    home = _HOMES[name]
    if home.split(".")[1] in _WITH_TENSORFLOW:
        _check_tensorflow(name)
    module = importlib.import_module(home)
    return module if name in _MODULES else getattr(module, name)


def __dir__() -> list[str]:
    return sorted({"__version__", *_HOMES})


def _check_tensorflow(name: str) -> None:
    from tf_byteps import _build_check

    _build_check.check_backend(name)
    _build_check.check_installed_tensorflow()
