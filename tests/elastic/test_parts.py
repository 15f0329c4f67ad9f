"""Parts of elastic training that need no job."""

import types

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_byteps as bps
from tf_byteps import _engine
from tf_byteps.config import Config
from tf_byteps.elastic import ends, retracing, variables
from tf_byteps.elastic.ends import End
from tf_byteps.errors import ConfigError, ExchangeError, on_all_workers
from tf_byteps.exchange import backup
from tf_byteps.strategy.input import sharding
from tf_byteps.training import traces


@pytest.fixture
def alone():
    bps.init()
    yield
    bps.shutdown()


def test_functions_are_traced_again():
    """A new epoch has other workers (protocol rule 16)."""
    traced = []

    @tf.function
    def function(x):
        traced.append(1)
        return x + 1

    for epoch in range(3):
        function(tf.constant(1))
        function(tf.constant(2))
        assert len(traced) == epoch + 1
        retracing.next_epoch()


@pytest.mark.parametrize(
    "what, again",
    [(traces.Dependence.EPOCH, 3), (traces.Dependence.PLACE, 1), (traces.Dependence.NOTHING, 1)],
)
def test_functions_that_exchange_nothing_keep_their_traces(what, again, alone):
    traced = []

    @tf.function
    def function(x):
        traced.append(1)
        return x + 1

    retracing.keep_traces()
    for _ in range(3):
        with traces.depending_on(what):
            function(tf.constant(1))
        retracing.next_epoch()
    assert len(traced) == again
    assert traces.dependence() is traces.Dependence.EPOCH


def test_a_keras_state_goes_back(alone):
    model = keras.Sequential([keras.Input([3]), keras.layers.BatchNormalization()])
    model.compile(keras.optimizers.Adam(0.1), "mse")
    state = bps.elastic.KerasState(model, epoch=0, seen=[])
    x = np.random.default_rng(1).normal(size=(8, 3)).astype("float32")
    model.fit(x, x, verbose=0)
    state.epoch, state.seen = 1, [1, 2]
    state.commit()
    before = [variable.numpy() for variable in state.variables()]
    state.seen.append(3)
    state.epoch = 2
    model.fit(x, x, verbose=0)
    state.restore()
    assert (state.epoch, state.seen) == (1, [1, 2])
    assert len(before) > 8  # slots of the optimizer and moving statistics, too
    for value, variable in zip(before, state.variables(), strict=True):
        np.testing.assert_array_equal(value, variable.numpy())


def test_a_state_is_not_saved_after_a_loss(alone, monkeypatch):
    """A compiled step on a GPU tells of a loss only after it has changed the weights."""
    weight = tf.Variable(1.0)
    state = bps.elastic.TensorFlowState([weight], step=1)
    weight.assign(2.0)
    state.step = 2
    monkeypatch.setattr(variables._engine, "worker_failure", lambda: "lost worker 1")
    with pytest.raises(tf.errors.UnavailableError, match="lost worker 1"):
        state.commit()
    state.restore()
    assert (weight.numpy(), state.step) == (1.0, 1)


class Elastic:
    """Stands for `runtime` in an elastic job in which news come when they have been looked for."""

    def __init__(self, change="", failure=""):
        self._news, self._looks = {"change": change, "failure": failure}, 0

    def is_initialized(self):
        return True

    def config(self):
        return Config(min_workers=1, **_PLACE)

    def coming_change(self):
        return self._look("change")

    def worker_failure(self):
        return self._look("failure")

    def _look(self, what):
        self._looks += 1
        return self._news[what] if self._looks > 4 else ""


@pytest.mark.parametrize("goes_back", [True, False])
@pytest.mark.parametrize(
    "code, news, expected, reason",
    [
        ("UNAVAILABLE", {}, End.LOSS, "x"),
        ("CANCELLED", {"failure": "lost 1"}, End.LOSS, "lost 1"),
        ("FAILED_PRECONDITION", {"failure": "lost 1"}, End.LOSS, "lost 1"),
        ("FAILED_PRECONDITION", {"change": "1 comes"}, End.CHANGE, "1 comes"),
        ("FAILED_PRECONDITION", {}, End.FAULT, ""),
        ("INVALID_ARGUMENT", {"failure": "lost 1"}, End.FAULT, ""),
    ],
)
def test_what_the_end_of_an_exchange_means(code, news, expected, reason, goes_back, monkeypatch):
    """Others may hear only later why it has ended."""
    job = Elastic(**news)
    monkeypatch.setattr(ends, "runtime", job)
    engine = {"EngineError": _engine.EngineError, "worker_failure": job.worker_failure}
    monkeypatch.setattr(ends, "_engine", types.SimpleNamespace(**engine))
    if not news:
        monkeypatch.setattr(ends, "_UNTIL_HEARD", 0.1)
    if goes_back and expected is End.CHANGE:  # all stop together: it is about something else
        monkeypatch.setattr(ends, "_UNTIL_HEARD", 0.1)
        expected, reason = End.FAULT, ""
    errors = [ExchangeError("x", code)]
    if code in _OF_TENSORFLOW:
        errors.append(_OF_TENSORFLOW[code](None, None, "x"))
    for error in errors:
        assert ends.end_of(error, goes_back) == (expected, reason)


@pytest.mark.parametrize("goes_back, expected", [(False, End.CHANGE), (True, End.FAULT)])
def test_an_error_that_all_workers_have_may_be_a_change(goes_back, expected, monkeypatch):
    """Where nobody goes back, `fit` marks the error of a change, too."""
    job = Elastic(change="1 comes")
    monkeypatch.setattr(ends, "runtime", job)
    error = on_all_workers(ExchangeError("x", "FAILED_PRECONDITION"))
    assert ends.end_of(error, goes_back)[0] is expected


def test_errors_of_the_program_are_no_loss():
    assert ends.end_of(ValueError("x"), goes_back=True) == (End.FAULT, "")
    assert ends.end_of(KeyboardInterrupt(), goes_back=False) == (End.FAULT, "")


def test_a_model_without_variables_is_refused(alone):
    model = keras.Sequential([keras.layers.Dense(1)])
    with pytest.raises(ValueError, match="no variables yet"):
        bps.elastic.KerasState(model)
    with pytest.raises(ValueError, match="'commit'"):
        bps.elastic.ObjectState(commit=1)


def test_run_without_an_elastic_job(alone):
    state = bps.elastic.ObjectState(step=0)

    @bps.elastic.run
    def train(state, steps):
        for _ in range(steps):
            state.step += 1
            state.commit()
        return state.step

    assert train(state, 3) == 3


class Commits:
    """A state that notes what it has when it is committed."""

    def __init__(self, epoch, batch):
        self.epoch, self.batch, self.commits = epoch, batch, []

    def commit(self):
        self.commits.append((self.epoch, self.batch))


@pytest.mark.parametrize("counts_from", ["state", "zero"])
def test_callbacks_in_any_order(counts_from):
    state = Commits(epoch=1, batch=2)
    callbacks = [
        bps.elastic.CommitStateCallback(state, batches_per_commit=2),
        bps.elastic.UpdateBatchStateCallback(state),
        bps.elastic.UpdateEpochStateCallback(state),
    ]
    model = keras.Sequential([keras.Input([1]), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    x = np.zeros((5, 1), "float32")
    epochs = {"initial_epoch": 1, "epochs": 3} if counts_from == "state" else {"epochs": 2}
    model.fit(x, x, batch_size=1, verbose=0, callbacks=callbacks, **epochs)
    assert state.commits == [(1, 4), (1, 6), (2, 0), (2, 2), (2, 4), (3, 0)]


def test_a_shuffle_that_a_new_worker_cannot_follow(monkeypatch):
    monkeypatch.setattr(
        sharding, "runtime", types.SimpleNamespace(config=lambda: Config(min_workers=1, **_PLACE))
    )
    plain = tf.data.Dataset.range(4)
    fixed = plain.shuffle(4, seed=1, reshuffle_each_iteration=False).batch(2)
    shuffled = plain.shuffle(4, seed=1).batch(2).map(lambda x: x)
    for _ in range(2):
        assert sharding._earlier_uses(plain) == sharding._earlier_uses(fixed) == 0
    assert [sharding._earlier_uses(shuffled) for _ in range(3)] == [0, 1, 2]


def test_fewer_workers_than_backup_workers(monkeypatch, caplog):
    size = 3
    job = types.SimpleNamespace(
        config=lambda: Config(min_workers=1, backup_workers=2, **_PLACE), size=lambda: size
    )
    monkeypatch.setattr(backup, "runtime", job)
    monkeypatch.setattr(backup, "_said", set())
    seen = []
    for size in (3, 2, 1, 2, 3):  # noqa: B007
        seen.append(backup.backup_workers(None))
    assert seen == [2, 1, 0, 1, 2]
    assert caplog.text.count("backup_workers is 2, but the job has 2 workers now") == 1
    monkeypatch.setattr(job, "config", lambda: Config(backup_workers=2))
    size = 2
    with pytest.raises(ValueError, match="at least one must be waited for"):
        backup.backup_workers(None)


_PLACE = {"scheduler_host": "127.0.0.1", "scheduler_port": 9}
_OF_TENSORFLOW = {
    "CANCELLED": tf.errors.CancelledError,
    "FAILED_PRECONDITION": tf.errors.FailedPreconditionError,
    "UNAVAILABLE": tf.errors.UnavailableError,
}


def test_settings_that_contradict_each_other():
    with pytest.raises(ConfigError, match="would be lost with that worker"):
        Config(min_workers=1, colocated_scheduler=True, **_PLACE)
    with pytest.raises(ConfigError, match="max_workers"):
        Config(min_workers=3, max_workers=2, **_PLACE)
    with pytest.raises(ConfigError, match="min_workers"):
        Config(min_workers=1)
    config = Config(min_workers=1, **_PLACE)
    assert config.distributed and config.hosts_server and not config.hosts_scheduler
    assert config.rank is None
