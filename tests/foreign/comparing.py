"""Runs the programs on some workers and in one process, and compares what they show."""

import functools

from tests import side_by_side
from tests.cluster import run_workers
from tests.foreign import running
from tests.selection import asked

GROUP_SECONDS = 1500


def results_of(request, test, tmp_path_factory, env=None):
    """What a test asks for.

    Args:
        request: pytest's, of a fixture.
        test: the function, with the parameters `name` and `workers`.
        tmp_path_factory: pytest's.
        env: variables of the processes.

    Returns:
        A function of a number of workers: what each showed; of 0: what the single process did.
    """

    @functools.cache
    def of(workers):
        rows = asked(request, test)
        names = [row["name"] for row in rows if workers in (0, row["workers"])]
        folder = str(tmp_path_factory.mktemp("files"))
        return run_workers(
            running.run_programs,
            workers=max(workers, 1),
            servers=1 if workers else 0,
            timeout=GROUP_SECONDS,
            env=env,
            args=(not workers, folder, list(dict.fromkeys(names))),
        )

    return of


def check(results, name, workers, differs):
    """Fails unless a program shows what one process shows.

    Args:
        results: what `results_of` returned.
        name: of the program.
        workers: their number.
        differs: why they show something else; "" if they do not.
    """
    program = running.all_programs()[name]
    single, ours = side_by_side.checked(name, results(0)[0], results(workers))
    unlike = {key: side_by_side.difference(ours[key], single[key]) for key in single}
    unlike = {key: value for key, value in unlike.items() if not value <= program.tolerance}
    if program.on_average:
        unlike = {key: value for key, value in unlike.items() if key.startswith("log")}
    if differs:
        assert unlike, "one process shows the same: the row need not say that it differs"
        unlike = {key: value for key, value in unlike.items() if key.startswith("same")}
    assert not unlike, f"differs from one process, relative or absolute: {unlike}"
