"""What `bpslaunch --dry-run` prints: the processes of a job, as lines for a shell."""

import shlex
from collections.abc import Sequence

from tf_byteps.launch.hosts import is_local
from tf_byteps.launch.plan import Plan, Task

_COLUMNS = 80
_INDENT = "    "
_CONTINUED = " \\"


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
