"""`Config`: the table of settings with values, where they come from, and what follows from them."""

from __future__ import annotations

import dataclasses
import difflib
import functools
import os
from collections.abc import Iterable, Mapping
from typing import Any

from tf_byteps.config import checks
from tf_byteps.config.options import FIELDS, OPTIONS, Options
from tf_byteps.config.topology import Topology, topology_of
from tf_byteps.config.variables import mention_unused_variables, merge_enable_rdma
from tf_byteps.environments import SOURCES
from tf_byteps.environments.merging import add_place
from tf_byteps.environments.place import ports_in
from tf_byteps.errors import ConfigError

# Shared values that processes need to reach each other: none can take them from another one.
_NEEDED_AT_ONCE = ("tls",)


@dataclasses.dataclass(frozen=True)
class Config(Options):
    """All settings of one process. Arguments win over the environment, that over defaults.

    Every field has one environment variable; docs/configuration.md lists those for users. With
    nothing configured the process is the only worker and opens no socket.

    Attributes:
        sources: where each value that is not a default comes from: an environment variable's name,
            "TF_CONFIG", "argument" or "scheduler".

    Raises:
        ConfigError: a value has the wrong form, or values contradict each other.

    Example:

    >>> Config.from_environment({"BYTEPS_PARTITION_BYTES": "65536"}).part_bytes
    65536
    """

    sources: Mapping[str, str] = dataclasses.field(
        default_factory=dict, compare=False, repr=False, kw_only=True
    )

    @classmethod
    def from_environment(
        cls, env: Mapping[str, str] | None = None, default_role: str = "worker", **overrides: Any
    ) -> Config:
        """Reads the configuration from environment variables.

        Args:
            env: a mapping of variables. Default: this process's environment.
            default_role: the role if nothing names one.
            **overrides: field values that win over the environment.

        Returns:
            A `Config`.

        Raises:
            ConfigError: a variable or argument has the wrong form, or they contradict each other.
        """
        env = os.environ if env is None else env
        values, sources = {}, {}
        for name, described in OPTIONS.items():
            if env.get(described.variable, "").strip():
                values[name] = described.read(env[described.variable])
                sources[name] = described.variable
        merge_enable_rdma(env, values, sources)
        add_place(env, values, sources)
        _check_names(overrides)
        values.update(overrides)
        sources.update(dict.fromkeys(overrides, "argument"))
        values.setdefault("role", default_role)
        try:
            return cls(**values, sources=sources)
        except ConfigError:  # perhaps for want of one that is misspelt
            mention_unused_variables(env)
            raise

    def replace(self, source: str = "argument", **changes: Any) -> Config:
        """A copy with other values.

        Args:
            source: where they come from, for error messages.
            **changes: the values, by field name.

        Returns:
            A `Config`.

        Raises:
            ConfigError: see the class.
        """
        _check_names(changes)
        sources = {**self.sources, **dict.fromkeys(changes, source)}
        return dataclasses.replace(self, **changes, sources=sources)

    def __post_init__(self) -> None:
        checks.check(self)

    def named(self, name: str) -> str:
        """A field's value in words, under the name by which its user set it.

        Args:
            name: the field's name.

        Returns:
            For example `"BYTEPS_PARTITION_BYTES (part_bytes) is 65536"`.
        """
        source = self.sources.get(name, "")
        known = OPTIONS[name].variable if source in ("", "argument", "scheduler") else source
        label = f"{known} ({name})" if source != known else known
        if source in SOURCES:
            label = f"{name} of {source}"
        return f"{label} is {OPTIONS[name].shown(getattr(self, name))}"

    def is_set(self, name: str) -> bool:
        """Whether a field was set, by a variable or an argument, even to its default.

        Args:
            name: the field's name.

        Returns:
            A boolean.
        """
        return name in self.sources

    @functools.cached_property
    def topology(self) -> Topology:
        """Where this process stands in its job, a `Topology`."""
        return topology_of(self)

    @property
    def listening_ports(self) -> list[int]:
        """The ports at which this process may listen where none is named; empty: any.

        That of the scheduler is not among them: it may not be there yet.
        """
        if self.ports is None:
            return []
        return [port for port in ports_in(self.ports) if port != self.scheduler_port]

    @property
    def size(self) -> int:
        """Number of workers in the job, as far as this process was told."""
        return self.topology.size

    @property
    def rank(self) -> int | None:
        """This worker's rank, or None if the scheduler is to assign one."""
        return self.topology.rank

    @property
    def distributed(self) -> bool:
        """Whether this process takes part in a job with a scheduler and servers."""
        return bool(self.topology.reason)

    @property
    def speaks_for_all(self) -> bool:
        """Whether this process warns of what all processes of the job have in common."""
        if self.role in ("server", "scheduler"):  # of bpslaunch, or begun by hand
            return self.global_size is None and not self.elastic
        return self.rank == 0 or (self.rank is None and self.member in (None, "0"))

    @property
    def elastic(self) -> bool:
        """Whether the number of workers may change while the job runs."""
        return self.min_workers is not None

    @property
    def has_secret(self) -> bool:
        """Whether this process was given the job's secret, or a file with it."""
        return self.job_secret is not None or self.job_secret_file is not None

    @property
    def on_one_machine(self) -> bool:
        """Whether all processes of the job are known to be on this machine."""
        return self.topology.on_one_machine

    @property
    def hosts_server(self) -> bool:
        """Whether this process is a worker that also runs a server."""
        return self.topology.hosts_server

    @property
    def hosts_scheduler(self) -> bool:
        """Whether this process is a worker that also runs the scheduler."""
        return self.topology.hosts_scheduler

    def shared_values(self) -> dict[str, float]:
        """The values that must be the same in all processes of a job.

        Returns:
            A dict of numbers, by field name.
        """
        values = {name: getattr(self, name) for name, o in OPTIONS.items() if o.shared}
        # The engine chooses what is 0. Flags are numbers, too.
        return {
            name: 0 if value is None else int(value) if isinstance(value, bool) else value
            for name, value in values.items()
        }

    def stated_values(self) -> dict[str, float]:
        """Of the shared values those that this process insists on.

        These are the ones that were set, and what its sockets do before it learns of the others'.

        Returns:
            A dict of numbers, by field name.
        """
        values = self.shared_values()
        return {n: v for n, v in values.items() if self.is_set(n) or n in _NEEDED_AT_ONCE}

    def with_shared_values(self, values: Mapping[str, float], source: str) -> Config:
        """A copy with the values that all processes of a job share.

        Args:
            values: what `shared_values` returned, here or in another process of the job.
            source: where they come from, for error messages.

        Returns:
            A `Config`.
        """
        chosen = {name: _own_form(name, value) for name, value in values.items()}
        return self.replace(source=source, **chosen)

    def __str__(self) -> str:
        shown = [name for name, o in OPTIONS.items() if o.listed or name in self.sources]
        rows = [(name, self._printed(name), self._origin(name)) for name in shown]
        widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
        return "\n".join(
            f"{name:{widths[0]}}  {value:{widths[1]}}  {origin}" for name, value, origin in rows
        )

    def _printed(self, name: str) -> str:
        value = getattr(self, name)
        if value is None:
            return ""
        return "(hidden)" if OPTIONS[name].hidden else str(value)

    def _origin(self, name: str) -> str:
        if name in self.sources:
            return "from " + self.sources[name]
        depends = OPTIONS[name].default_text
        return f"default ({depends})" if depends else "default"


def _own_form(name: str, value: float) -> float | None:
    """The value of a field that all processes share, from the number that travels."""
    default = FIELDS[name].default
    if default is None and value == 0:
        return None
    return bool(value) if isinstance(default, bool) else value


def _check_names(values: Iterable[str]) -> None:
    for name in values:
        if name not in OPTIONS:
            close = difflib.get_close_matches(name, OPTIONS, 1)
            hint = f"; did you mean {close[0]}?" if close else f"; there are {', '.join(OPTIONS)}"
            raise ConfigError(f"there is no setting {name!r}{hint}")
