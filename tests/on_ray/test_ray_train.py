"""Programs that Ray Train's trainers start."""

import json

import pytest

from tests.on_ray import programs

pytestmark = pytest.mark.slow


@pytest.fixture
def fit(cluster, tmp_path):
    """Trains with two workers; returns their number and the weights."""
    train = pytest.importorskip("ray.train", reason="make test-ray installs Ray Train")

    def run(trainer, loop=programs.fit_in_ray_train, setup=True, **settings):
        failures = train.FailureConfig(max_failures=1 if "dies" in settings else 0)
        results = tmp_path / "results"
        done = trainer(
            loop,
            train_loop_config={"setup": setup, "results": str(results), **settings},
            scaling_config=train.ScalingConfig(num_workers=2),
            run_config=train.RunConfig(storage_path=str(tmp_path), failure_config=failures),
        ).fit()
        assert done.error is None
        return json.loads(results.read_text())

    return run


@pytest.fixture
def expected(launcher):
    """Two workers, and the weights that one process ends with."""
    return [2.0, pytest.approx(launcher(1).run(programs.fit)[0], rel=1e-5)]


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


def test_a_job_goes_on_from_rays_checkpoint(fit, launcher, tmp_path):
    """A worker dies after two epochs of four; the next two are trained once, with Adam's state."""
    from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

    dies = tmp_path / "died"
    epochs, weights = fit(DataParallelTrainer, programs.fit_from_checkpoint, dies=str(dies))
    assert dies.exists()
    assert epochs == [2, 3]
    assert weights == pytest.approx(launcher(1).run(programs.fit, [4])[0], rel=1e-5)
