"""`python -m tests.faults`: runs the fault suite and prints its table."""

import argparse
import sys

from benchmarks.cluster import why_unavailable
from tests.faults import cuts, suite


def main():
    parser = argparse.ArgumentParser(prog="python -m tests.faults")
    parser.add_argument("--only", default="", help="cases whose name contains this")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--times", type=int, default=1, help="each case: with so many seeds")
    options = parser.parse_args()
    results = []
    seeds = range(options.seed, options.seed + options.times)
    cases = [(case, suite.run) for seed in seeds for case in suite.cases(seed)]
    if why_unavailable():
        print(f"no networks are cut: {why_unavailable()}")
    else:
        cases += [(cut, cuts.run) for seed in seeds for cut in cuts.cases(seed)]
    for case, run in cases:
        if options.only not in str(case):
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
    return int(any(result.faults for result in results))


if __name__ == "__main__":
    sys.exit(main())
