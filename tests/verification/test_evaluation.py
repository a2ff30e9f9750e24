"""What is measured on fresh episodes, against the same computed by hand on the very episodes that the predictor saw."""

import jax
import numpy as np
import pytest

from ppl_tunnels.verification import evaluation
from ppl_tunnels.verification.divergences import entropy_bits, floored, kl_bits, kl_range_bits, total_variation
from ppl_tunnels.verification.evaluation import batches, evaluate, rounded_up

TOLERANCE = 0.05
KEY = jax.random.key(3)


class Recorder:
    """A predictor that keeps what it saw and said."""

    def __init__(self, answer):
        self.answer, self.seen, self.said = answer, [], []

    def __call__(self, episodes):
        self.seen.append(episodes)
        self.said.append(self.answer(episodes))
        return self.said[-1]


@pytest.fixture
def batches_of_64(monkeypatch):
    """So that several batches cost little."""
    monkeypatch.setattr(evaluation, "BATCH", 64)


@pytest.fixture(scope="module")
def coin(small_tunnels):
    return small_tunnels["coin"]


def exact_of(tunnel, share=0.0):
    """Bayes mixed with a share of the uniform law."""

    def answer(episodes):
        probs = tunnel.oracle().predictive(episodes).to_numpy()
        return (1 - share) * probs + share / probs.shape[-1]

    return answer


def test_whole_batches():
    assert [rounded_up(n) for n in (1, 2048, 2049, 4096, 10_000)] == [1, 2048, 4096, 4096, 10_240]


def test_batches_are_fresh_of_one_shape_and_hide_latents(batches_of_64, coin, small_tunnels):
    drawn = list(batches(coin, KEY, 192))
    assert [len(batch) for batch in drawn] == [64, 64, 64]
    assert all(batch.latent == {} for batch in drawn)
    assert [len(batch) for batch in batches(coin, KEY, 64)] == [64]
    pairs = [np.asarray(batch.stream["value"]) for batch in batches(small_tunnels["bijection"], KEY, 128)]
    assert not np.array_equal(*pairs)
    again = [np.asarray(batch.stream["value"]) for batch in batches(small_tunnels["bijection"], KEY, 128)]
    assert np.array_equal(pairs, again)


@pytest.mark.parametrize("where", ["coin", "bijection", "bijection with repeated keys"])
def test_bayes_is_at_distance_exactly_zero_from_itself(batches_of_64, small_tunnels, where):
    tunnel = small_tunnels[where]
    result = evaluate(tunnel.oracle().predictive, tunnel, KEY, 128, tolerance_bits=TOLERANCE)
    assert result.failed is None
    assert result.raw_kl == 0.0
    assert result.ruled_out_mass == 0.0
    for measure in (result.total_variation, result.entropy_error, result.jensen_shannon, result.entropy_error_by_step):
        assert measure.max() == 0.0
    assert 0 < result.kl.max() <= TOLERANCE / 10 + 1e-12  # what flooring costs, and no more
    assert result.model_entropy.tolist() == result.oracle_entropy.tolist()


def test_every_measure_by_hand(batches_of_64, small_tunnels):
    tunnel = small_tunnels["bijection"]
    recorder, told = Recorder(exact_of(tunnel, share=0.2)), []
    result = evaluate(recorder, tunnel, KEY, 192, tolerance_bits=TOLERANCE, on_progress=told.append)
    assert told == [64, 128, 192]
    exact = np.concatenate([tunnel.oracle().predictive(episodes).to_numpy() for episodes in recorder.seen])
    said = np.concatenate(recorder.said)
    assert result.kl == pytest.approx(kl_bits(exact, floored(said, TOLERANCE)))
    assert result.raw_kl == pytest.approx(kl_bits(exact, said).mean())
    assert result.total_variation == pytest.approx(total_variation(exact, said).mean(axis=1))
    assert result.entropy_error == pytest.approx(np.abs(entropy_bits(said) - entropy_bits(exact)).mean(axis=1))
    assert result.model_entropy == pytest.approx(entropy_bits(said).mean(axis=0))
    # At step t of a bijection of four, t of four values are ruled out, and a fifth of the mass is spread over all four.
    assert result.ruled_out_mass == pytest.approx(np.mean([0.2 * t / 4 for t in range(3)]))
    assert result.oracle_entropy == pytest.approx(np.log2([4, 3, 2]))


def test_entropy_errors_do_not_cancel(coin):
    """Too sure in half of the episodes and too unsure in the others: the mean entropy is nearly right, the error is not."""

    def answer(episodes):
        return np.where((np.arange(len(episodes)) % 2)[:, None, None], [0.5, 0.5], [0.999, 0.001]) * np.ones((1, 4, 1))

    result = evaluate(answer, coin, KEY, 64, tolerance_bits=TOLERANCE)
    cancelled = np.abs(result.model_entropy - result.oracle_entropy)
    assert (result.entropy_error_by_step > 2 * cancelled)[1:].all()  # at the first step Bayes is unsure of everything
    assert result.entropy_error.mean() == pytest.approx(result.entropy_error_by_step.mean())


def test_only_scored_steps_are_measured(programs):
    tunnel = programs.every_other

    def answer(episodes):
        probs = exact_of(tunnel)(episodes)
        probs[:, [0, 2]] = [9.0, -3.0]
        return probs

    result = evaluate(answer, tunnel, KEY, 64, tolerance_bits=TOLERANCE)
    assert result.failed is None
    assert result.kl.shape == (64, 2)
    assert result.raw_kl == 0.0
    everything = tunnel.oracle().predictive(next(batches(tunnel, KEY, 64))).to_numpy()
    assert result.oracle_entropy == pytest.approx(entropy_bits(everything).mean(axis=0)[[1, 3]])


@pytest.mark.parametrize("bad_batch, judged", [(0, 0), (1, 64), (2, 128)])
def test_a_failure_ends_the_measurement_before_its_batch(batches_of_64, coin, bad_batch, judged):
    def answer(episodes):
        probs = exact_of(coin)(episodes)
        if len(recorder.seen) == bad_batch + 1:
            probs[10, 2] = np.nan
        return probs

    recorder = Recorder(answer)
    result = evaluate(recorder, coin, KEY, 192, tolerance_bits=TOLERANCE)
    assert result.failed.name == "finite"
    assert f"episode {64 * bad_batch + 10}, step 3 of 4" in result.failed.where
    assert result.kl.shape == (judged, 4)
    assert len(result.total_variation) == len(result.entropy_error) == judged
    assert len(recorder.seen) == bad_batch + 1


def test_a_zero_where_the_oracle_has_mass_is_reported_before_the_floor_hides_it(batches_of_64, coin):
    result = evaluate(
        lambda episodes: np.tile([1.0, 0.0], (len(episodes), 4, 1)), coin, KEY, 128, tolerance_bits=TOLERANCE
    )
    assert result.failed.name == "covers the oracle"
    assert "probability 0 for symbol 1" in result.failed.where
    assert result.raw_kl == np.inf
    assert len(result.kl) == 64  # that batch is measured, with the floor
    assert result.kl.max() < kl_range_bits(2, TOLERANCE)


def test_the_largest_divergence_that_can_be_stays_within_the_range(small_tunnels):
    """A key seen before, and a predictor that puts all its mass elsewhere: KL is log2(V / d), to the last bit."""
    tunnel = small_tunnels["bijection with repeated keys"]
    result = evaluate(
        lambda episodes: np.eye(3)[(exact_of(tunnel)(episodes).argmax(axis=-1) + 1) % 3],
        tunnel,
        KEY,
        64,
        tolerance_bits=TOLERANCE,
    )
    assert result.kl.max() == pytest.approx(kl_range_bits(3, TOLERANCE), rel=1e-12)
    assert result.total_variation.max() <= 1
    assert result.jensen_shannon.max() <= 1
