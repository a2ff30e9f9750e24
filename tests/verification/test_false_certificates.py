"""How often a model whose true mean error is exactly the tolerance gets certified, or refuted: at most 1 % at 99 %.

Every run draws a fresh sample of the smallest size at which anything can be certified, or four times that, from laws of
very different shapes whose mean is known exactly. A count that a rate of 1 % would reach with probability 5e-5 at most
(15 of 400, 40 of 2000) fails. A one-sided t bound, a range read off the sample and positions counted as episodes go
through the same harness, and must fail it.
"""

import numpy as np
import pytest
from scipy import optimize, special, stats

from ppl_tunnels.verification.bounds import log_evalue_mean_at_least, lower_bound, upper_bound
from ppl_tunnels.verification.chernoff import chernoff_lower_bound, chernoff_upper_bound
from ppl_tunnels.verification.divergences import kl_range_bits
from ppl_tunnels.verification.sample_size import episodes_needed

CONFIDENCE = 0.99
FALSE_ALARM = 5e-5  # of one count, if the true rate is exactly 1 - CONFIDENCE
RUNS, SLOW_RUNS = 400, 2000
TOLERANCE, RANGE = 0.1, float(np.log2(20))  # bits; certifiable from 240 episodes on, so that a run is cheap
SLOW_TOLERANCE, SLOW_RANGE = 0.01, kl_range_bits(20, 0.01)  # what `certify` uses for the bijection


def alarming_count(runs):
    """The smallest count that Binomial(runs, 1 - CONFIDENCE) reaches with probability FALSE_ALARM at most."""
    return int(stats.binom.isf(FALSE_ALARM, runs, 1 - CONFIDENCE)) + 1


def constant(generator, mean, range_, size):
    return np.full(size, mean)


def exponential(generator, mean, range_, size):
    """min(s E, R), with s such that s (1 - exp(-R / s)) is the mean."""
    scale = optimize.brentq(lambda s: -s * np.expm1(-range_ / s) - mean, mean / 2, 10 * mean, xtol=1e-15)
    return np.minimum(generator.exponential(scale, size), range_)


def lognormal(generator, mean, range_, size):
    """min(exp(mu + 2 Z), R), with mu such that exp(mu + 2) Phi(t - 2) + R Phi(-t), t = (ln R - mu) / 2, is the mean."""

    def excess(mu):
        t = (np.log(range_) - mu) / 2
        return np.exp(mu + 2) * special.ndtr(t - 2) + range_ * special.ndtr(-t) - mean

    mu = optimize.brentq(excess, np.log(mean) - 10, np.log(range_), xtol=1e-15)
    return np.minimum(np.exp(mu + 2 * generator.standard_normal(size)), range_)


def rare_spikes(generator, mean, range_, size):
    """A tenth of the mean is there always; the rest comes from spikes of R / 2."""
    spike = generator.uniform(size=size) < 0.9 * mean / (range_ / 2)
    return 0.1 * mean + np.where(spike, range_ / 2, 0.0)


def two_point(generator, mean, range_, size):
    return np.where(generator.uniform(size=size) < mean / range_, range_, 0.0)


SHAPES = {shape.__name__: shape for shape in (constant, exponential, lognormal, rare_spikes, two_point)}


def false_verdicts(verdict, shape, *, runs, episodes, tolerance, range_, seed, batch=100):
    """Counts the runs for which `verdict(x [episode, run])` is true, though the mean is exactly the tolerance."""
    generator = np.random.default_rng(seed)
    return sum(
        int(np.sum(verdict(SHAPES[shape](generator, tolerance, range_, (episodes, min(batch, runs - done))))))
        for done in range(0, runs, batch)
    )


def first_certifiable(tolerance, range_):
    return episodes_needed(tolerance=tolerance, range_=range_, confidence=CONFIDENCE, mean=0.0)


def certified(upper, *, tolerance=TOLERANCE, range_=RANGE):
    return lambda x: upper(x, range_=range_, confidence=CONFIDENCE) <= tolerance


def refuted(lower, *, tolerance=TOLERANCE, range_=RANGE):
    return lambda x: lower(x, range_=range_, confidence=CONFIDENCE) > tolerance


def quick_count(verdict, shape, *, factor=1, seed=0):
    episodes = round(factor * first_certifiable(TOLERANCE, RANGE))
    return false_verdicts(verdict, shape, runs=RUNS, episodes=episodes, tolerance=TOLERANCE, range_=RANGE, seed=seed)


def test_the_alarm_has_the_stated_false_alarm_rate():
    assert (alarming_count(RUNS), alarming_count(SLOW_RUNS)) == (15, 40)
    for runs in (RUNS, SLOW_RUNS):
        assert stats.binom.sf(alarming_count(runs) - 1, runs, 1 - CONFIDENCE) <= FALSE_ALARM


@pytest.mark.parametrize("tolerance, range_", [(TOLERANCE, RANGE), (SLOW_TOLERANCE, SLOW_RANGE)])
@pytest.mark.parametrize("shape", SHAPES)
def test_the_shapes_have_the_stated_mean(shape, tolerance, range_):
    x = SHAPES[shape](np.random.default_rng(0), tolerance, range_, 10**6)
    assert x.min() >= 0
    assert x.max() <= range_
    assert abs(x.mean() - tolerance) <= 5 * x.std() / 1e3 + 1e-12  # five standard errors: a false alarm in 1.7 million


@pytest.mark.parametrize("factor", [1, 4])
@pytest.mark.parametrize("shape", SHAPES)
def test_bounds_rarely_certify_or_refute_falsely(shape, factor):
    for upper, lower in ((upper_bound, lower_bound), (chernoff_upper_bound, chernoff_lower_bound)):
        assert quick_count(certified(upper), shape, factor=factor) < alarming_count(RUNS)
        assert quick_count(refuted(lower), shape, factor=factor) < alarming_count(RUNS)


def student_t(x, *, range_, confidence):
    return x.mean(0) + stats.t.ppf(confidence, len(x) - 1) * x.std(0, ddof=1) / np.sqrt(len(x))


def range_from_the_sample(x, *, range_, confidence):
    return upper_bound(x, range_=np.maximum(x.max(0), 1e-9), confidence=confidence)


def positions_counted_as_episodes(x, *, range_, confidence):
    return upper_bound(np.repeat(x, 19, axis=0), range_=range_, confidence=confidence)


# A range read off the sample needs fewer episodes to certify, and does so whenever the sample holds no spike.
FAULTS = [
    (student_t, "two_point", 1),
    (student_t, "lognormal", 1),
    (range_from_the_sample, "two_point", 0.25),
    (positions_counted_as_episodes, "rare_spikes", 1),
    (positions_counted_as_episodes, "exponential", 1),
]


@pytest.mark.parametrize(
    "fault, shape, factor", FAULTS, ids=[f"{fault.__name__}-{shape}" for fault, shape, _ in FAULTS]
)
def test_wrong_bounds_certify_falsely(fault, shape, factor):
    assert quick_count(certified(fault), shape, factor=factor) >= alarming_count(RUNS)


def test_looking_after_every_episode_is_allowed():
    def ever_certified(x):
        wealth = [log_evalue_mean_at_least(x[:n], TOLERANCE, range_=RANGE) for n in range(1, len(x) + 1)]
        return np.max(wealth, axis=0) >= -np.log1p(-CONFIDENCE)

    assert quick_count(ever_certified, "two_point") < alarming_count(RUNS)


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES)
def test_certificates_at_full_size_are_rarely_false(shape):
    setting = {"tolerance": SLOW_TOLERANCE, "range_": SLOW_RANGE}
    run = {**setting, "runs": SLOW_RUNS, "episodes": first_certifiable(SLOW_TOLERANCE, SLOW_RANGE), "seed": 1}
    counts = {
        bound.__name__: false_verdicts(verdict(bound, **setting), shape, **run)
        for verdict, bound in ((certified, upper_bound), (refuted, lower_bound), (certified, student_t))
    }
    print(f"{shape}: false verdicts in {SLOW_RUNS} runs of {run['episodes']} episodes: {counts}")
    assert max(counts["upper_bound"], counts["lower_bound"]) < alarming_count(SLOW_RUNS)
    if shape == "two_point":
        assert counts["student_t"] >= alarming_count(SLOW_RUNS)
