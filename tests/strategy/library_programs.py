"""Runs the methods of TensorFlow's own `strategy_test_lib` in worker processes."""

import contextlib
import glob
import os
import tempfile
import unittest

import tensorflow as tf
from tensorflow.python.distribute import strategy_test_lib as library
from tensorflow.python.framework import errors

import tf_byteps as bps


class SeesAllWorkers(bps.BytePSStrategy):
    """Shows methods that know the replicas of one process only those of all workers.

    Each worker's iterator gets its own element of a dataset, as each device of one process would.
    """

    def experimental_local_results(self, value):
        return tuple(tf.unstack(self.gather(tf.expand_dims(value, 0), axis=0)))

    unwrap = experimental_local_results

    def make_input_fn_iterator(self, input_fn):
        def own_elements(context):
            return input_fn(context).shard(context.num_input_pipelines, context.input_pipeline_id)

        return super().make_input_fn_iterator(own_elements)


class RemoteBase(library.RemoteSingleWorkerMirroredStrategyBase):
    def _get_num_gpus(self):
        return bps.size()


def call(base, method, sees_all_workers=False, **arguments):
    """Runs one method of a base class of the library as a test of its own.

    Args:
        base: the name of the class.
        method: the name of its method.
        sees_all_workers: whether the method is to see all workers' replicas as one process's.
        **arguments: what it is called with, after the strategy.

    Returns:
        "ran", or "skipped: " with the reason that TensorFlow gives.
    """
    strategy = (SeesAllWorkers if sees_all_workers else bps.BytePSStrategy)()
    case_class = RemoteBase if base.startswith("Remote") else getattr(library, base)
    return run_case(case_class, lambda case: getattr(case, method)(strategy, **arguments))


def run_case(case_class, body):
    """Calls `body` with a test case of the class, between its setUp and tearDown."""

    class Case(case_class):
        def runTest(self):
            body(self)

    result = unittest.TestResult()
    Case("runTest").run(result)
    failures = [trace for _, trace in result.errors + result.failures]
    if failures:
        raise AssertionError("\n".join(failures))
    if result.skipped:
        return f"skipped: {result.skipped[0][1]}"
    return "ran"


def input_fn_iterable():
    """`_test_input_fn_iterable` and `_input_fn_to_test_input_context`.

    Every worker has a dataset of its own, and is told who it is.
    """
    strategy = bps.BytePSStrategy()
    rank, size = bps.rank(), bps.size()

    def body(case):
        input_fn = case._input_fn_to_test_input_context(
            lambda: tf.data.Dataset.range(100).shard(size, rank),
            expected_num_replicas_in_sync=size,
            expected_num_input_pipelines=size,
            expected_input_pipeline_id=rank,
        )
        expected = [[number] for number in range(100 // size * size) if number % size == rank]
        case._test_input_fn_iterable(strategy, input_fn, expected)

    return run_case(library.DistributionTestBase, body)


def summaries():
    """`_test_summary_for_replica_zero_only` on worker 0; the others write only a file's head."""
    strategy = bps.BytePSStrategy()

    def body(case):
        if bps.rank() == 0:
            case._test_summary_for_replica_zero_only(strategy)
            return
        folder = tempfile.mkdtemp(dir=case.get_temp_dir())
        with contextlib.suppress(errors.NotFoundError), strategy.scope():
            writer = tf.summary.create_file_writer(folder)

            def run():
                with writer.as_default(step=0):
                    case.assertFalse(tf.summary.write("a", 1.0))

            strategy.run(run)
            writer.close()
        records = [record for file in _files(folder) for record in _records(file)]
        case.assertLen(records, 1)

    return run_case(library.DistributionTestBase, body)


def replica_id():
    """`_test_replica_id` on worker 0, where a process's ids begin at 0 as it assumes."""
    strategy = bps.BytePSStrategy()
    if bps.rank() == 0:
        return run_case(library.DistributionTestBase, lambda case: case._test_replica_id(strategy))
    seen = []
    strategy.run(
        lambda: seen.append(int(tf.distribute.get_replica_context().replica_id_in_sync_group))
    )
    assert seen == [bps.rank()]
    return "ran"


def _files(folder):
    return glob.glob(os.path.join(folder, "*"))


def _records(file):
    return list(tf.compat.v1.io.tf_record_iterator(file))
