"""How one setting is declared: its variables, how its text is read, which values it may have."""

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any

from tf_byteps import _engine
from tf_byteps.environments.place import MAX_PORT, ports_in
from tf_byteps.errors import ConfigError

# What the engine has as well has its default in cc/base/job.h, and only there.
ENGINE = _engine.EngineOptions()


@dataclasses.dataclass(frozen=True)
class Kind:
    """A kind of value.

    Attributes:
        description: what a value must be, to go after "must be".
        read: turns a variable's text into a value; raises ValueError.
        accepts: whether a value, read or given as an argument, may be used.
        unit: what a number counts, or "".
    """

    description: str
    read: Callable[[str], Any]
    accepts: Callable[[Any], bool]
    unit: str = ""


_MOST = 2**63 - 1  # that the engine can hold


def whole(minimum: int = 0, maximum: int | None = None, unit: str = "") -> Kind:
    """A whole number from `minimum` to `maximum`, both included."""
    limit = f", at least {minimum}" if maximum is None else f" from {minimum} to {maximum}"
    noun = f"a whole number of {unit}" if unit else "a whole number"

    def accepts(value: Any) -> bool:
        if isinstance(value, bool) or not isinstance(value, int):
            return False
        return minimum <= value <= (_MOST if maximum is None else maximum)

    return Kind(noun + limit + " (digits only)", lambda text: int(text, 10), accepts, unit)


def seconds(zero_means: str | None = None) -> Kind:
    """A finite number of seconds above 0; 0 too, if that means something."""
    description = "a number of seconds above 0"
    if zero_means:
        description = f"a number of seconds, or 0 ({zero_means})"

    def accepts(value: Any) -> bool:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return False
        return math.isfinite(value) and (value > 0 or (value == 0 and zero_means is not None))

    return Kind(description, float, accepts, "seconds")


def text(maximum: int | None = None, minimum: int = 1) -> Kind:
    """Any text that is not empty."""
    limit = "" if maximum is None else f" of at most {maximum} bytes"
    if minimum > 1:
        limit = f" of at least {minimum} bytes"

    def accepts(value: Any) -> bool:
        if not isinstance(value, str) or len(value.encode()) < minimum:
            return False
        return maximum is None or len(value.encode()) <= maximum

    return Kind("a text" + limit, str, accepts)


def port_range() -> Kind:
    """A first and a last port."""

    def accepts(value: Any) -> bool:
        try:
            return isinstance(value, str) and bool(ports_in(value))
        except ValueError:
            return False

    description = f'a first and a last port, such as "20000-20063", from 1 to {MAX_PORT}'
    return Kind(description, str, accepts)


_FLAGS = {"1": True, "true": True, "yes": True, "on": True}
_FLAGS.update({"0": False, "false": False, "no": False, "off": False})


def flag() -> Kind:
    """Yes or no."""

    def read(given: str) -> bool:
        if given.lower() not in _FLAGS:
            raise ValueError(given)
        return _FLAGS[given.lower()]

    return Kind("1 (yes) or 0 (no)", read, lambda value: isinstance(value, bool))


def choice(*values: str, aliases: Mapping[str, str] | None = None) -> Kind:
    """One of `values`, in upper or lower case; `aliases` are read as one of them."""
    readable = {value.lower(): value for value in values}
    readable.update({alias.lower(): value for alias, value in (aliases or {}).items()})

    def read(given: str) -> str:
        if given.lower() not in readable:
            raise ValueError(given)
        return readable[given.lower()]

    return Kind("one of " + ", ".join(values), read, lambda value: value in values)


@dataclasses.dataclass(frozen=True)
class Option:
    """What is known about one field of `tf_byteps.Config`.

    Attributes:
        variable: the environment variable that sets it.
        kind: which values it may have.
        help: one or two sentences for the documentation.
        default_text: says what the default is when it depends on other fields.
        shared: whether it must be the same in all processes of a job.
        hidden: whether its value is never shown.
        listed: whether docs/configuration.md has it. What launchers and tests set is not there, nor
            what the page of its subject describes, as docs/rdma.md does.
    """

    variable: str
    kind: Kind
    help: str
    default_text: str = ""
    shared: bool = False
    hidden: bool = False
    listed: bool = True

    def shown(self, value: Any) -> str:
        """A value as messages may show it."""
        return "(hidden)" if self.hidden and value is not None else repr(value)

    def read(self, given: str) -> Any:
        """The value that the variable's text `given` stands for."""
        try:
            value = self.kind.read(given.strip())
        except ValueError:
            value = None
        if value is None or not self.kind.accepts(value):
            given = "(hidden)" if self.hidden else f'"{given}"'
            raise ConfigError(f"{self.variable} is {given}, but must be {self.kind.description}")
        return value


def option(
    default: Any,
    variable: str,
    kind: Kind,
    help: str,
    default_text: str = "",
    shared: bool = False,
    hidden: bool = False,
    listed: bool = True,
) -> Any:
    """A dataclass field with an `Option`."""
    described = Option(variable, kind, help, default_text, shared, hidden, listed)
    return dataclasses.field(default=default, repr=not hidden, metadata={"option": described})
