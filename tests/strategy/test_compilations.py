"""How often XLA compiles: once for each shape of a batch."""

import re

from tests.cluster import describe, run_processes
from tests.strategy import compilations_programs

_COUNT = re.compile(r"Compiled \S*one_step_on_data\S* (\d+) times")


def test_a_step_is_compiled_once_for_each_length_of_a_batch():
    logging = {"TF_CPP_MIN_LOG_LEVEL": "0", "TF_CPP_VMODULE": "device_compilation_profiler=1"}
    outcomes = run_processes(compilations_programs.fit, 2, 1, logging, timeout=120)
    workers = [each for each in outcomes if each.label.startswith("worker")]
    assert [each.result for each in workers] == [2, 2], describe(outcomes)
    assert [_COUNT.findall(each.output) for each in workers] == [["1", "2"]] * 2, describe(outcomes)
