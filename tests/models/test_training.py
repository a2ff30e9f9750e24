"""Training: it learns, repeats bit for bit, compiles once, and stops cleanly."""

import dataclasses
import json
import math

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from flax import nnx

from ppl_tunnels import wind_tunnel
from ppl_tunnels.keys import Purpose, stream_key
from ppl_tunnels.layouts import Layout
from ppl_tunnels.models import FitConfig, TrainingDivergedError, fit, load_model, training
from ppl_tunnels.models import training_step as steps_module
from ppl_tunnels.models.losses import kl_divergence
from ppl_tunnels.models.predictor import hash_weights
from ppl_tunnels.tunnel import WindTunnel
from ppl_tunnels.verification.divergences import kl_bits


def mean_kl_bits(predictor, tunnel) -> float:
    episodes = tunnel.sample(stream_key(0, Purpose.SELECTION), 500)
    log_p = tunnel.oracle().predictive(episodes).log_probs
    return float(kl_divergence(log_p, predictor(episodes).log_probs)) / math.log(2)


def test_it_learns_the_posterior_from_exact_targets(coin, short_run):
    # The prior's predictive is about 0.2 bits from this coin's; seeds 0, 1 and 2 ended between 1e-6 and 1.2e-5.
    assert mean_kl_bits(short_run.predictor, coin) < 2e-4
    assert short_run.metrics[0].kl_bits > 10 * short_run.metrics[-1].kl_bits
    assert short_run.predictor.targets == "oracle"


def test_it_learns_the_posterior_from_samples(coin, short_config):
    result = fit(coin, dataclasses.replace(short_config, targets="sampled"), progress=False)
    assert mean_kl_bits(result.predictor, coin) < 1e-2  # seeds 0 and 1 ended at 3e-3 and 4e-3
    assert result.predictor.targets == "sampled"
    # The loss scatters about irreducible + KL. The unit is the episode: 150 x 32, each deviating by under 2 bits.
    excess = np.mean([row.loss_bits - row.irreducible_bits - row.kl_bits for row in result.metrics])
    assert abs(excess) < 4 * 2 / math.sqrt(150 * 32)


def test_loss_is_irreducible_plus_kl_for_exact_targets(short_run):
    for row in short_run.metrics:
        assert row.loss_bits == pytest.approx(row.irreducible_bits + row.kl_bits, abs=1e-6)


def test_irreducible_loss_is_the_oracles_entropy_on_the_episodes_of_the_training_stream(coin, short_run):
    key = stream_key(0, Purpose.TRAINING)
    drawn = [coin.sample(jax.random.fold_in(key, step), 32) for step in range(30)]
    entropy = np.mean([coin.oracle().predictive(episodes).entropy().mean() for episodes in drawn]) / math.log(2)
    # Targets are rounded to float32.
    assert short_run.metrics[0].irreducible_bits == pytest.approx(float(entropy), abs=1e-6)


def test_only_scored_steps_count(coin):
    early = dataclasses.replace(coin, scoring=lambda **_: np.arange(5) < 2)
    vars(early)["_oracle"] = coin.oracle()  # the same program has the same oracle; deriving it again takes seconds
    config = FitConfig(steps=2, batch=4, options={"width": 8}, optimizer="adamw", steps_per_call=2)
    result = fit(early, config, progress=False)
    # The first flip is worth one bit; the second repeats it with probability sum(b^2) / sum(b) = 3/4, b = 0, 1/4 … 1.
    second = -(0.75 * math.log2(0.75) + 0.25 * math.log2(0.25))
    assert result.metrics[0].irreducible_bits == pytest.approx((1 + second) / 2, abs=1e-6)


@wind_tunnel(stream="y", context="x", predict="slope")
def line(length=3):
    slope = numpyro.sample("slope", dist.Categorical(jnp.array([0.2, 0.3, 0.5]))) - 1.0
    with numpyro.plate("point", length):
        x = numpyro.sample("x", dist.Normal(0.0, 1.0))
        numpyro.sample("y", dist.Normal(slope * x, 0.5))


@pytest.mark.parametrize("layout", [None, Layout("X {x} GO", ("{y} _!",) * 3)], ids=["plain", "markers"])
def test_it_reads_real_numbers_and_layouts(layout):
    """Would catch features that never reach the weights: without them the prior's distance is the best there is."""
    encoding = {} if layout is None else {"layout": layout}
    config = FitConfig(steps=300, batch=64, options={"width": 16}, steps_per_call=50, encoding=encoding)
    result = fit(line, config, progress=False)
    exact = line.oracle().predictive(line.probe).to_numpy()
    prior = kl_bits(exact, np.broadcast_to([0.2, 0.3, 0.5], exact.shape)).mean()
    assert mean_kl_bits(result.predictor, line) < prior / 5


def test_equal_seeds_give_equal_weights_and_others_do_not(coin, short_config, short_run):
    again = fit(coin, short_config, progress=False)
    other = fit(coin, dataclasses.replace(short_config, seed=1), progress=False)
    assert again.predictor.weights_hash == short_run.predictor.weights_hash != other.predictor.weights_hash
    strip = [dataclasses.replace(row, seconds=0.0) for row in again.metrics]
    assert strip == [dataclasses.replace(row, seconds=0.0) for row in short_run.metrics]


def test_global_precision_does_not_change_the_weights(coin, short_config, short_run):
    with jax.enable_x64(False):
        again = fit(coin, short_config, progress=False)
    assert again.predictor.weights_hash == short_run.predictor.weights_hash


def test_a_run_continued_from_its_state_is_the_run(coin, short_config, short_run):
    graph, state = steps_module.start(coin, short_config)
    call, key = steps_module.compiled_call(coin, short_config), stream_key(short_config.seed, Purpose.TRAINING)
    for _ in range(2):
        state, _ = call(key, state)
    # Through the host and back, as a checkpoint would take it.
    state = jax.tree.map(lambda leaf: jax.numpy.asarray(np.asarray(leaf)), state)
    for _ in range(3):
        state, _ = call(key, state)
    assert int(state.step) == 150
    assert hash_weights(nnx.merge(graph, state.parameters)) == short_run.predictor.weights_hash
    # A call beyond the last step changes nothing.
    after, records = call(key, state)
    assert int(after.step) == 150 and np.isnan(records.loss).all()
    jax.tree.map(np.testing.assert_array_equal, after, state)


def test_parameters_stay_float32(coin, short_config, short_run):
    graph, state = steps_module.start(coin, short_config)
    step = steps_module._one_step(coin, short_config, graph)
    shape, _ = jax.eval_shape(step, stream_key(0, Purpose.TRAINING), state)
    assert {leaf.dtype for leaf in jax.tree.leaves(shape.parameters)} == {np.dtype("float32")}
    assert {leaf.dtype for leaf in jax.tree.leaves(nnx.state(short_run.predictor.model))} == {np.dtype("float32")}


def test_nothing_compiles_again_within_a_run_or_for_another_seed(coin, monkeypatch):
    traces = []
    sample = WindTunnel.sample
    monkeypatch.setattr(WindTunnel, "sample", lambda self, key, n: (traces.append(n), sample(self, key, n))[1])
    config = FitConfig(steps=14, batch=3, options={"width": 8}, optimizer="adamw", steps_per_call=3)
    result = fit(coin, config, progress=False)
    assert [row.step for row in result.metrics] == [3, 6, 9, 12, 14]
    once = len(traces)
    other = fit(coin, dataclasses.replace(config, seed=5), progress=False)
    assert len(traces) == once == traces.count(3)
    assert other.compile_seconds < 0.1 * result.compile_seconds
    assert result.metrics[-1].learning_rate == pytest.approx(0.01 * (1 + math.cos(math.pi * 12 / 13)) / 2, rel=1e-4)


def test_a_run_leaves_a_model_and_whole_lines_of_metrics(coin, short_config, short_run, tmp_path):
    seen = []
    result = fit(coin, short_config, directory=tmp_path / "run", progress=False, on_metrics=seen.append)
    assert tuple(seen) == result.metrics
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert rows == [dataclasses.asdict(row) for row in result.metrics]
    again = load_model(tmp_path / "run")
    assert again.fingerprint == short_run.predictor.fingerprint
    assert again.training["seed"] == 0 and again.training["steps"] == 150
    assert again.tunnel == {
        "name": "coin",
        "source": "ppl_tunnels.tunnels.coin:coin",
        "configuration": {"length": 5, "points": 5},
        "predict": "flip",
        "fingerprint": coin.fingerprint,
    }


def test_ctrl_c_leaves_no_half_written_model(coin, short_config, short_run, tmp_path):
    def interrupt(row):
        if row.step == 60:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit(coin, short_config, directory=tmp_path, progress=False, on_metrics=interrupt)
    assert [path.name for path in tmp_path.iterdir()] == ["metrics.jsonl"]
    assert [json.loads(line)["step"] for line in (tmp_path / "metrics.jsonl").read_text().splitlines()] == [30, 60]
    # And a second try is not in its way.
    assert fit(coin, short_config, directory=tmp_path, progress=False).predictor.weights_hash == (
        short_run.predictor.weights_hash
    )


def test_divergence_names_the_step_and_what_to_try(coin, tmp_path):
    config = FitConfig(
        steps=20, batch=4, options={"width": 8}, optimizer="adamw", learning_rate=1e30, warmup=0.0, steps_per_call=10
    )
    with pytest.raises(
        TrainingDivergedError, match=r"is (nan|inf) at step [23] of 20; try a lower learning rate than 1e\+30"
    ):
        fit(coin, config, directory=tmp_path, progress=False)
    assert (tmp_path / "metrics.jsonl").read_text() == ""
    assert not (tmp_path / "model").exists()


def test_an_oracle_that_rules_out_what_was_drawn_is_named(coin, short_config, monkeypatch):
    def call(key, state):
        found = np.zeros(30)
        return state, steps_module.StepRecord(found, np.where(np.arange(30) == 7, np.inf, 0.0), found, found)

    monkeypatch.setattr(training, "compiled_call", lambda *_: call)
    message = (
        r"the oracle's own loss is inf at step 8 of 150: it gives probability zero to a value that the program drew"
    )
    with pytest.raises(TrainingDivergedError, match=message):
        fit(coin, short_config, progress=False)


def test_a_destination_that_holds_something_else_is_refused_before_training(coin, short_config, tmp_path):
    (tmp_path / "model").mkdir()
    with pytest.raises(ValueError, match="exists and is not a model folder"):
        fit(coin, short_config, directory=tmp_path, progress=False, on_metrics=lambda _: pytest.fail("it trained"))


def test_a_readout_one_step_too_early_is_seen_in_the_kl(coin, short_config, mutate, monkeypatch):
    faulty = mutate(steps_module, "encoding.readout[scored]", "encoding.readout[np.maximum(scored - 1, 0)]")
    for name in ("start", "compiled_call"):
        monkeypatch.setattr(training, name, getattr(faulty, name))
    result = fit(coin, short_config, progress=False)
    assert mean_kl_bits(result.predictor, coin) > 2e-3
    assert result.metrics[-1].kl_bits > 2e-2
