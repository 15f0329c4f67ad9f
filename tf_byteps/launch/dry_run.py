"""What `bpslaunch --dry-run` prints: the processes of a job, as lines for a shell."""

import shlex
import shutil
from collections.abc import Mapping, Sequence

from tf_byteps.errors import ConfigError
from tf_byteps.launch.guard import why_not
from tf_byteps.launch.hosts import is_local
from tf_byteps.launch.plan import Plan, Task

_COLUMNS = 80
_INDENT = "    "
_CONTINUED = " \\"


def check_program(
    command: Sequence[str], hosts: Sequence[str], environment: Mapping[str, str]
) -> None:
    """Returns if the workers' program is there, as far as that can be told on this machine.

    Args:
        command: the workers'.
        hosts: theirs. Of the programs of other machines nothing is known here.
        environment: the variables of processes here.

    Raises:
        ConfigError: this machine has no such program.
    """
    here = any(map(is_local, hosts))
    if here and shutil.which(command[0], path=environment.get("PATH")) is None:
        raise ConfigError(f"cannot start {why_not(command, 'there is no such program')}")


def script(headline: str, plan: Plan, tasks: Sequence[Task], shell: str) -> str:
    """What a job would start.

    Args:
        headline: says it in a line.
        plan: the job's.
        tasks: what it would start.
        shell: the name of what starts processes on other hosts.
    """
    lines = [f"# {headline}", "# Nothing is started."]
    if plan.needs_scheduler and not plan.scheduler_port:
        lines[-1] += " The scheduler will choose its port: below it is 0."
    return "\n".join([*lines, "", script_of_tasks(tasks, shell)])


def script_of_tasks(tasks: Sequence[Task], shell: str) -> str:
    """Each process with its place, its variables and its command, which a shell understands."""
    return "\n".join(f"{_place(task, shell)}\n{_folded(_words(task))}\n" for task in tasks)


def _place(task: Task, shell: str) -> str:
    return f"# {task.label} on {task.host}{'' if is_local(task.host) else f' by {shell}'}"


def _words(task: Task) -> list[str]:
    variables = [f"{name}={shlex.quote(value)}" for name, value in task.variables.items()]
    return variables + [shlex.quote(word) for word in task.command]


def _folded(words: Sequence[str]) -> str:
    """The words in lines of a terminal's width, joined as a shell joins lines."""
    lines, width = [words[0]], _COLUMNS - len(_CONTINUED)
    for word in words[1:]:
        if len(lines[-1]) + 1 + len(word) <= width:
            lines[-1] += f" {word}"
        else:
            lines.append(f"{_INDENT}{word}")
    return f"{_CONTINUED}\n".join(lines)
