"""Process sets: exchanges between some workers of the job.

The name of an exchange says between whom it is (cc/base/members.h): one that begins with
"workers{0,2-4}/" is between these workers. So sets never meet under one name, and all that is
derived from a name, such as that of its gradient, belongs to the same set.
"""

from __future__ import annotations

import itertools
import operator
import re
import weakref
from collections.abc import Iterable, Sequence
from typing import Any

from tf_byteps import runtime
from tf_byteps.config import Config
from tf_byteps.errors import BytePSError, on_all_workers
from tf_byteps.exchange.object_gather import gather_objects

_SCOPE = re.compile(r"workers\{([0-9,-]+)\}/")
# Session -> its sets, the global one first; a set that has been removed leaves None.
_sets_of: weakref.WeakKeyDictionary[Any, list[ProcessSet | None]] = weakref.WeakKeyDictionary()


class ProcessSet:
    """Some workers of the job, which exchange tensors with each other.

    Give it to `init(process_sets=[...])` or `add_process_set`, on all workers, also on those that
    are not in it. Then pass it as `process_set=` on the workers that are.

    Args:
        ranks: their ranks in the job, a list of integers. The order does not matter.

    Raises:
        ValueError: there is no rank, one is negative, or one is there twice.
        TypeError: there is something else than integers.

    Example:

    >>> even = tf_byteps.add_process_set([0, 2])
    >>> if even.included():
    ...     mean = tf_byteps.push_pull(loss, process_set=even, name="loss")
    """

    def __init__(self, ranks: Iterable[int]) -> None:
        self._ranks = _checked_ranks(ranks)

    @property
    def ranks(self) -> tuple[int, ...]:
        """The ranks of its workers in the job, ascending."""
        return self._ranks

    @property
    def process_set_id(self) -> int | None:
        """Its number in the job, from 1; `None` if it is not in use there."""
        sets = _sets() if runtime.is_initialized() else []
        return next((number for number, each in enumerate(sets) if each is self), None)

    def size(self) -> int | None:
        """How many workers it has.

        Returns:
            An integer; `None` if the set is not in use.
        """
        return None if self.process_set_id is None else len(self.ranks)

    def rank(self) -> int | None:
        """This worker's number among its workers.

        Returns:
            An integer, from 0; `None` if it is not one of them, or the set is not in use.
        """
        return self.ranks.index(runtime.rank()) if self.included() else None

    def included(self) -> bool | None:
        """Whether this worker is one of its workers.

        Returns:
            A boolean; `None` if the set is not in use.
        """
        return None if self.process_set_id is None else runtime.rank() in self.ranks

    def __repr__(self) -> str:
        return f"ProcessSet({list(self.ranks)}, process_set_id={self.process_set_id})"


class _AllWorkers(ProcessSet):
    """All workers of the job."""

    def __init__(self) -> None:
        self._ranks = ()

    @property
    def ranks(self) -> tuple[int, ...]:
        return tuple(range(runtime.size())) if runtime.is_initialized() else ()

    @property
    def process_set_id(self) -> int | None:
        return 0 if runtime.is_initialized() else None


#: All workers of the job. What has no `process_set` is between them.
global_process_set: ProcessSet = _AllWorkers()


def init(
    config: Config | None = None,
    process_sets: Sequence[ProcessSet | Sequence[int]] | str | None = None,
    **overrides: Any,
) -> None:
    """Brings this process into its job as a worker, and waits until the job is complete.

    With nothing configured it is the only worker and opens no socket. Calling it again with the
    same configuration, or with none, does nothing.

    Args:
        config: a `tf_byteps.Config`. Default: read from the environment.
        process_sets: a list of `ProcessSet` or of lists of ranks, the same on all workers, that are
            in use from then on: see `add_process_set`. `"dynamic"`, as in Horovod, is the same as
            none: sets can be added at any time.
        **overrides: field values of `Config` that win over `config` or the environment.

    Raises:
        BytePSError: the configuration cannot be used, the other processes cannot be reached, or
            tf_byteps runs with another configuration.
        ValueError: see `add_process_set`.

    Example:

    >>> tf_byteps.init()
    >>> tf_byteps.rank(), tf_byteps.size()
    (0, 1)
    """
    if isinstance(process_sets, str) and process_sets != "dynamic":
        raise ValueError(
            f"process_sets must be a list of process sets, or 'dynamic', got {process_sets!r}"
        )
    runtime.init(config, **overrides)
    for each in [] if process_sets is None or isinstance(process_sets, str) else process_sets:
        if not isinstance(each, ProcessSet) or each.process_set_id is None:
            add_process_set(each)


def add_process_set(process_set: ProcessSet | Iterable[int]) -> ProcessSet:
    """Begins to use a process set. A collective: all workers of the job call it, in eager code.

    Args:
        process_set: a `ProcessSet`, or the ranks of its workers; the same on all workers.

    Returns:
        The `ProcessSet`, which now has a `process_set_id`, the same on all workers.

    Raises:
        ValueError: on all workers, if they add different sets, a rank is none of the job's, or a
            set of these workers is in use already.
        BytePSError: `tf_byteps.init()` was not called, or the job is elastic.

    Example: see `ProcessSet`.
    """
    added = process_set if isinstance(process_set, ProcessSet) else ProcessSet(process_set)
    sets = _sets()
    if runtime.config().elastic:
        raise BytePSError(
            "process sets name workers by their ranks, which change in an elastic job: leave "
            "--min-np out, or exchange between all workers"
        )
    _check_same("adds", added)
    problem = ""
    if added is global_process_set or any(each and each.ranks == added.ranks for each in sets[1:]):
        problem = "is in use already: go on with the one that was added first"
    elif added.ranks[-1] >= runtime.size():
        problem = f"has worker {added.ranks[-1]}, and the job has {runtime.size()} workers"
    if problem:
        raise on_all_workers(ValueError(f"the process set of workers {_shown(added)} {problem}"))
    sets.append(added)
    return added


def remove_process_set(process_set: ProcessSet) -> bool:
    """Ends the use of a process set. A collective: all workers of the job call it, in eager code.

    Args:
        process_set: what `add_process_set` has returned; the same on all workers.

    Returns:
        Whether it was in use. `global_process_set` cannot be removed.

    Raises:
        ValueError: on all workers, if they remove different sets.
        TypeError: it is no `ProcessSet`.

    Example:

    >>> tf_byteps.remove_process_set(even)
    True
    """
    sets = _sets()
    _check_same("removes", _checked(process_set))
    if process_set is global_process_set or process_set not in sets:
        return False
    sets[sets.index(process_set)] = None  # so that the others keep their numbers
    return True


def by_id(process_set_id: int) -> ProcessSet:
    """The process set of this number, 0 for all workers. Raises ValueError if there is none."""
    sets = _sets() if process_set_id else [global_process_set]
    found = sets[process_set_id] if 0 <= process_set_id < len(sets) else None
    if found is None:
        raise ValueError(f"there is no process set {process_set_id}: add it on all workers first")
    return found


def scope_of(process_set: ProcessSet | None) -> str:
    """What names of exchanges between these workers begin with, before a slash.

    Args:
        process_set: a `ProcessSet` that is in use and has this worker, or `None` for all workers.

    Returns:
        For example "workers{0,2-4}"; "" for all workers.

    Raises:
        TypeError: it is something else.
        ValueError: it is not in use, or this worker is not in it.
    """
    if process_set is None or process_set is global_process_set:
        return ""
    if _checked(process_set).process_set_id is None:
        raise ValueError(
            f"the process set of workers {_shown(process_set)} is not in use: call "
            "tf_byteps.add_process_set with it on all workers first"
        )
    if not process_set.included():
        raise ValueError(
            f"worker {runtime.rank()} is not in the process set of workers {_shown(process_set)}: "
            "call this where process_set.included() is true"
        )
    return f"workers{{{_shown(process_set)}}}"


def members_of(name: str) -> list[int] | None:
    """The workers between whom an exchange of this name is, ascending; `None`: all."""
    match = _SCOPE.match(name)
    if match is None:
        return None
    ranges = (each.partition("-") for each in match[1].split(","))
    return [r for first, _, last in ranges for r in range(int(first), int(last or first) + 1)]


def size_of(process_set: ProcessSet | None) -> int:
    """How many workers exchange with each other."""
    return len(process_set.ranks) if process_set is not None else runtime.size()


def _sets() -> list[ProcessSet | None]:
    """Those in use, by number. Another session has its own."""
    return _sets_of.setdefault(runtime.session("process sets"), [global_process_set])


def _check_same(verb: str, process_set: ProcessSet) -> None:
    ranks = list(process_set.ranks)
    for rank, other in enumerate(gather_objects("process sets", [verb, ranks])):
        if other != [verb, ranks]:
            raise on_all_workers(
                ValueError(
                    "all workers must add and remove the same process sets, in the same order: "
                    f"worker {runtime.rank()} {verb} that of workers {ranks}, and worker {rank} "
                    f"{other[0]} that of workers {other[1]}"
                )
            )


def _checked(process_set: Any) -> ProcessSet:
    if isinstance(process_set, ProcessSet):
        return process_set
    raise TypeError(f"process_set must be a tf_byteps.ProcessSet, got {process_set!r}")


def _checked_ranks(ranks: Iterable[int]) -> tuple[int, ...]:
    if isinstance(ranks, (str, bytes)) or not isinstance(ranks, Iterable):
        raise TypeError(f"a process set is made of a list of ranks, got {ranks!r}")
    try:
        numbers = sorted(operator.index(rank) for rank in ranks)
    except TypeError:
        raise TypeError(f"a process set is made of ranks, integers, got {ranks!r}") from None
    if not numbers or numbers[0] < 0 or len(set(numbers)) < len(numbers):
        raise ValueError(
            f"a process set needs one rank at least, each from 0 on and given once, got {numbers}"
        )
    return tuple(numbers)


def _shown(process_set: ProcessSet) -> str:
    """As names have it: "0,2-4"."""
    runs = []
    for _, run in itertools.groupby(enumerate(process_set.ranks), lambda pair: pair[1] - pair[0]):
        ranks = [rank for _, rank in run]
        runs.append(f"{ranks[0]}-{ranks[-1]}" if len(ranks) > 1 else str(ranks[0]))
    return ",".join(runs)
