"""Test cases that TensorFlow's own `combinations` and `multi_process_runner` run, in 2 workers.

The main process forks the workers, each of which runs the same case; they know `TF_CONFIG` only.
"""

import socket

import tensorflow as tf
from absl.testing import parameterized
from tensorflow.python.distribute import combinations, multi_process_runner, strategy_test_lib

import tf_byteps as bps


def _strategy():
    """The main process only reports what the workers found."""
    return None if combinations.in_main_process() else bps.BytePSStrategy()


def _workers():
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
    addresses = [f"127.0.0.1:{server.getsockname()[1]}" for server in held]
    for server in held:
        server.close()
    return multi_process_runner.MultiProcessPoolRunner({"worker": addresses})


TWO_WORKERS = combinations.NamedDistribution(
    "TwoWorkers", _strategy, num_workers=2, has_chief=False, pool_runner_fn=_workers
)


@combinations.generate(combinations.combine(distribution=[TWO_WORKERS], mode=["eager"]))
class MultiProcessTest(strategy_test_lib.DistributionTestBase, parameterized.TestCase):
    def tearDown(self):
        super().tearDown()
        bps.shutdown()

    def testMinimizeLoss(self, distribution):
        self._test_minimize_loss_eager(distribution)

    def testCallAndMergeExceptions(self, distribution):
        self._test_call_and_merge_exceptions(distribution)

    def testGlobalStepUpdate(self, distribution):
        self._test_global_step_update(distribution)

    def testWorkersOfTheRunner(self, distribution):
        resolver = distribution.cluster_resolver
        self.assertEqual(distribution.num_replicas_in_sync, 2)
        self.assertEqual(resolver.task_id, bps.rank())
        self.assertLen(resolver.cluster_spec().as_dict()["worker"], 2)
        self.assertAllEqual(distribution.reduce("SUM", tf.constant([1.0 + bps.rank()]), None), [3])
        self.assertAllEqual(distribution.gather(tf.constant([bps.rank()]), axis=0), [0, 1])
