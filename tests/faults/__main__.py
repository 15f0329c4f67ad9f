"""`python -m tests.faults`: runs the fault suite and prints its table."""

from absl import flags

from benchmarks import options
from benchmarks.cluster import why_unavailable
from tests.faults import cuts, suite

_ONLY = flags.DEFINE_string("only", "", "cases whose name contains this")
_SEED = flags.DEFINE_integer("seed", 1, "of the first turn")
_TIMES = flags.DEFINE_integer("times", 1, "each case: with so many seeds", lower_bound=1)


def main():
    results = []
    seeds = range(_SEED.value, _SEED.value + _TIMES.value)
    cases = [(case, suite.run) for seed in seeds for case in suite.cases(seed)]
    if why_unavailable():
        print(f"no networks are cut: {why_unavailable()}")
    else:
        cases += [(cut, cuts.run) for seed in seeds for cut in cuts.cases(seed)]
    for case, run in cases:
        if _ONLY.value not in str(case):
            continue
        if run is cuts.run and cuts.why_not(case):
            print(f"{case}: not run: {cuts.why_not(case)}", flush=True)
            continue
        result = run(case)
        results.append(result)
        print(f"{case} (seed {case.seed}): {result.known} {result.faults or 'well'}", flush=True)
        if result.faults:
            print(result.text, flush=True)
    print(suite.table(results))
    return not any(result.faults for result in results)


if __name__ == "__main__":
    options.run(main)
