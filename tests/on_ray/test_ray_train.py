"""Programs that Ray Train's trainers start."""

import json

import pytest

from tests.on_ray import programs

pytestmark = pytest.mark.slow


@pytest.fixture
def fit(cluster, tmp_path):
    """Trains with two workers; returns their number and the weights."""
    train = pytest.importorskip("ray.train", reason="make test-ray installs Ray Train")

    def run(trainer, setup=True, **settings):
        failures = train.FailureConfig(max_failures=1 if "dies" in settings else 0)
        results = tmp_path / "results"
        done = trainer(
            programs.fit_in_ray_train,
            train_loop_config={"setup": setup, "results": str(results), **settings},
            scaling_config=train.ScalingConfig(num_workers=2),
            run_config=train.RunConfig(storage_path=str(tmp_path), failure_config=failures),
        ).fit()
        assert done.error is None
        return json.loads(results.read_text())

    return run


@pytest.fixture
def expected(cluster):
    """Two workers, and the weights that one process ends with."""
    from tf_byteps.ray import RayLauncher

    return [2.0, pytest.approx(RayLauncher(1).run(programs.fit)[0], rel=1e-5)]


def test_tensorflow_trainer(fit, expected):
    from ray.train.tensorflow import TensorflowTrainer

    assert fit(TensorflowTrainer) == expected


def test_tensorflow_trainer_without_setup_has_no_secret(fit):
    from ray.train import TrainingFailedError
    from ray.train.tensorflow import TensorflowTrainer

    with pytest.raises(TrainingFailedError, match="tf_byteps.ray.setup"):
        fit(TensorflowTrainer, setup=False)


def test_other_trainers(fit, expected):
    from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

    assert fit(DataParallelTrainer) == expected


def test_ray_train_starts_again_after_a_worker_has_died(fit, expected, tmp_path):
    from ray.train.tensorflow import TensorflowTrainer

    assert fit(TensorflowTrainer, dies=str(tmp_path / "died")) == expected
    assert (tmp_path / "died").exists()
