"""A job's options in a YAML file: `bpslaunch --config job.yaml`."""

import shlex
from collections.abc import Hashable
from typing import Any

import yaml

from tf_byteps.errors import ConfigError

_OF_THE_COMMAND_LINE = ("config", "help", "version", "m")
# The option is given once for each entry. That of others joins them with commas.
_REPEATED = ("env", "ssh-option")


def read(path: str) -> tuple[list[str], list[str]]:
    """Reads a file of options.

    Args:
        path: of a YAML file. It has one mapping: from an option's name without dashes to its value.
            A list or a mapping stands for several values, true for an option without one. "command"
            is what the workers run.

    Returns:
        The options as words of a command line, and the command's words.

    Raises:
        ConfigError: the file cannot be read, is not YAML, or has another form.

    Example:
        >>> text = "np: 4\\nhosts: {host1: 2, host2: 2}\\ncommand: python train.py"
        >>> pathlib.Path("job.yaml").write_text(text)
        >>> read("job.yaml")
        (['--np=4', '--hosts=host1:2,host2:2'], ['python', 'train.py'])
    """
    try:
        with open(path, encoding="utf-8") as file:
            given = yaml.load(file, _Loader)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(f"--config {path} cannot be read: {error}") from None
    if not isinstance(given, dict):
        raise ConfigError(
            f"--config {path} has no options: lines such as 'np: 4' and 'servers: 2' are expected, "
            f"not {given!r:.60}"
        )
    command = given.pop("command", [])
    words = []
    for name, value in given.items():
        try:
            words += _words(str(name).replace("_", "-"), value)
        except ValueError as error:
            raise ConfigError(f"{path}: {name}: {error}") from None
    return words, shlex.split(command) if isinstance(command, str) else _texts(path, command)


class _Loader(yaml.SafeLoader):
    """Refuses what YAML forbids, but its library takes: a key that occurs twice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        keys = [key.value for key, _ in node.value]
        for key in keys:
            if keys.count(key) > 1:
                raise yaml.constructor.ConstructorError(
                    None, None, f"{key!r} occurs {keys.count(key)} times", node.start_mark
                )
        return super().construct_mapping(node, deep)


def _words(name: str, value: object) -> list[str]:
    if name in _OF_THE_COMMAND_LINE:
        raise ValueError("only the command line can set this")
    if isinstance(value, bool):
        return [f"--{name}"] if value else []
    if isinstance(value, dict):
        separator = ":" if name == "hosts" else "="
        texts = [_pair(key, separator, entry) for key, entry in value.items()]
    else:
        texts = [_text(entry) for entry in (value if isinstance(value, list) else [value])]
    if name in _REPEATED:
        return [f"--{name}={text}" for text in texts]
    return [f"--{name}={','.join(texts)}"]


def _pair(key: object, separator: str, value: object) -> str:
    return _text(key) if value is None else f"{_text(key)}{separator}{_text(value)}"


def _text(value: object) -> str:
    # YAML reads yes, no, on and off as truth values: a variable would change in silence.
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError(f"{value!r} is neither a text nor a number: write texts in quotes")
    return str(value)


def _texts(path: str, command: object) -> list[str]:
    if not isinstance(command, list):
        raise ConfigError(
            f"{path}: command: a text or a list of words is expected: {command!r:.60}"
        )
    try:
        return [_text(word) for word in command]
    except ValueError as error:
        raise ConfigError(f"{path}: command: {error}") from None
