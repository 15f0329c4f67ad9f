"""Runs drawn trainings on some workers and in one process, and compares what they show."""

import functools

from tests import side_by_side
from tests.cluster import run_workers
from tests.selection import asked_values

GROUP_SECONDS = 900
_TOGETHER = 20  # in one group of processes, by whose end nothing is shown


def results_of(request, test, tmp_path_factory, function, mode_of, env=None):
    """What a test asks for.

    Args:
        request: pytest's, of a fixture.
        test: the test, with the parameter `seed`.
        tmp_path_factory: pytest's.
        function: of `running`.
        mode_of: a function of a seed: the last argument of `function`.
        env: variables of the processes.

    Returns:
        A function of a seed: what the single process and the workers of its group showed.
    """
    seeds = asked_values(request, "seed", test)

    @functools.cache
    def of_group(group, mode):
        chosen = [n for n in seeds if n // _TOGETHER == group and mode_of(n) == mode]
        return [
            run_workers(
                function,
                workers=max(workers, 1),
                servers=1 if workers else 0,
                timeout=GROUP_SECONDS,
                env=env,
                args=(not workers, str(tmp_path_factory.mktemp("files")), chosen, mode),
            )
            for workers in (0, 2 + group % 2)
        ]

    return lambda seed: of_group(seed // _TOGETHER, mode_of(seed))


def check(drawn, results):
    """Fails unless workers show what one process shows.

    Args:
        drawn: the case or the step of a seed.
        results: what the function of `results_of` returned for it.
    """
    single, workers = results
    theirs, ours = side_by_side.checked(str(drawn.seed), single[0], workers)
    unlike = {key: side_by_side.difference(ours[key], theirs[key]) for key in theirs}
    unlike = {key: value for key, value in unlike.items() if not value <= drawn.tolerance}
    assert not unlike, f"{len(workers)} workers, {drawn}: {unlike}"
