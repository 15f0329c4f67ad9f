"""What launchers say, put together with what DMLC_ and BYTEPS_ variables say."""

from collections.abc import Mapping
from typing import Any

from tf_byteps.environments import find_place
from tf_byteps.environments.place import Place, port_for, ports_in
from tf_byteps.errors import ConfigError


def add_place(
    environment: Mapping[str, str], values: dict[str, Any], sources: dict[str, str]
) -> None:
    """Adds what launchers say; a variable may say the same, or where to listen, nothing else.

    Args:
        environment: a mapping of variables.
        values: what `DMLC_` and `BYTEPS_` variables say, by `Config` field; grows.
        sources: the variable that said it, by field; grows.

    Raises:
        ConfigError: see `find_place`; or a variable says something else.
    """
    place = find_place(environment, _is_described(values))
    if place is None:
        return
    free = {"node_host", "server_port", "job_id", "colocated_scheduler", "one_machine"}
    fields = dict(place.fields)
    job_id = fields.get("job_id", "")
    if "ports" in values and fields.get("scheduler_port") == port_for(
        job_id
    ):  # it is no launcher's
        fields["scheduler_port"] = port_for(job_id, ports_in(values["ports"]))
    if place.source != "TF_CONFIG":  # another address may be better, and its own may be missing
        free |= {"scheduler_host", "scheduler_port"}
    if "num_worker_machines" in values and "num_worker_machines" not in fields:
        _check_machines(place, values, sources)
    for name, value in fields.items():
        if name not in values:
            values[name], sources[name] = value, place.source
        elif values[name] != value and name not in free:
            raise ConfigError(
                f"{sources[name]} says that {name} is {values[name]!r}, but {place.source} says "
                f"{value!r}: unset one of the two variables"
            )


def _is_described(values: Mapping[str, Any]) -> bool:
    """Whether DMLC_ and BYTEPS_ variables say what this process is, as bpslaunch's do."""
    if values.get("role", "worker") != "worker":
        return True
    sizes = ("num_worker_machines", "global_size", "min_workers")
    return "role" in values and any(name in values for name in sizes)


def _check_machines(place: Place, values: Mapping[str, Any], sources: Mapping[str, str]) -> None:
    """Of launchers that number processes: machines times processes on each, or as many machines."""
    machines = values["num_worker_machines"]
    on_each = values.get("local_size", place.fields.get("local_size", 1))
    if place.size not in (None, machines, machines * on_each):
        raise ConfigError(
            f"{sources['num_worker_machines']} says that num_worker_machines is {machines}, but "
            f"{place.source} has started {place.size} processes ({place.said}): unset one of the "
            f"two variables"
        )
