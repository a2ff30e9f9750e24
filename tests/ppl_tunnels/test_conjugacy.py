"""Conjugate updating against textbook formulas, and programs that are conjugate for some data only."""

import functools

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
import scipy.stats
from numpyro.contrib.control_flow import scan
from scipy.special import betaln, gammaln

from ppl_tunnels import wind_tunnel
from ppl_tunnels.errors import NoEngineError, TunnelError
from ppl_tunnels.oracles.derive import derive

EXACT = {"rtol": 1e-12, "atol": 0}


@functools.cache
def oracle_of(tunnel):
    return derive(tunnel)


def band(length, width):
    back = np.arange(length)[:, None] - np.arange(length)
    return (back > 0) & (back <= width)


@wind_tunnel(stream="heads")
def coin(first=1.0, second=1.0, length=11):
    bias = numpyro.sample("bias", dist.Beta(first, second))
    with numpyro.plate("flips", length):
        numpyro.sample("heads", dist.Bernoulli(bias))


def test_laplace_rule_of_succession() -> None:
    """Would catch pseudo-counts added once too often."""
    law = oracle_of(coin).predictive(coin.episodes(stream={"heads": [[1] * 11]}))
    np.testing.assert_allclose(law.to_numpy()[0, :, 1], (np.arange(11) + 1) / (np.arange(11) + 2), **EXACT)


@pytest.mark.parametrize(
    ("zeros", "ones", "probability"), [(1, 1, 1 / 8), (2, 2, 3 / 128), (2, 3, 3 / 256), (3, 3, 5 / 1024)]
)
def test_krichevsky_trofimov(zeros, ones, probability) -> None:
    """Would catch pseudo-counts of one where the prior says one half, and evidence that depends on the order."""
    half = coin.configure(first=0.5, second=0.5, length=zeros + ones)
    for data in ([0] * zeros + [1] * ones, [1] * ones + [0] * zeros):
        evidence = oracle_of(half).log_evidence(half.episodes(stream={"heads": [data]}))
        np.testing.assert_allclose(np.exp(evidence), [probability], rtol=1e-14)


@wind_tunnel(stream="girls", predict="rate")
def births(n=980, length=1):
    rate = numpyro.sample("rate", dist.Uniform(0.0, 1.0))
    with numpyro.plate("years", length):
        numpyro.sample("girls", dist.Binomial(n, rate))


def test_girls_among_births() -> None:
    """Gelman et al. (2013), section 2.4: mean .446029, standard deviation .015854. Would catch a uniform prior misread."""
    law = oracle_of(births).predictive(births.episodes(stream={"girls": [[437]]}))
    assert float(law.mean[0, 0]) == pytest.approx(0.446029, abs=5e-7)
    assert float(np.sqrt(law.variance[0, 0])) == pytest.approx(0.015854, abs=5e-7)
    base = law.to_numpy()
    assert (float(base["concentration1"][0, 0]), float(base["concentration0"][0, 0])) == (438.0, 544.0)


@wind_tunnel(stream="symbol")
def rows(symbols=3, length=5):
    table = numpyro.sample("table", dist.Dirichlet(jnp.array([1.0, 2.0, 0.5])).expand([symbols]).to_event(1))

    def step(previous, _):
        return numpyro.sample("symbol", dist.Categorical(table[previous])), None

    scan(step, 0, None, length=length)


def test_rows_of_a_table_gathered_by_the_previous_symbol() -> None:
    """Would catch counts put in the wrong row, and masks that hide the symbol itself and not only its likelihood."""
    data = rows.probe.stream["symbol"][:6]
    for visible in (np.tril(np.ones((5, 5), bool), -1), band(5, 2)):
        right = np.zeros((6, 5, 3))
        for episode, step in np.ndindex(6, 5):
            counts = np.tile([1.0, 2.0, 0.5], (3, 1))
            before = np.concatenate([[0], data[episode]])
            for s in np.flatnonzero(visible[step]):
                counts[before[s], data[episode, s]] += 1
            right[episode, step] = counts[before[step]] / counts[before[step]].sum()
        law = oracle_of(rows).predictive(rows.episodes(stream={"symbol": data}), visible=visible)
        np.testing.assert_allclose(law.to_numpy(), right, **EXACT)
    posterior = oracle_of(rows).posterior(rows.episodes(stream={"symbol": data}), "table")
    assert (posterior.batch_shape, posterior.event_shape) == ((6, 6), (3, 3))


def test_dirichlet_counts() -> None:
    """Ordered counts (2, 1, 0) under Dirichlet(1, 1, 1): evidence 1/30, then 1/2, 1/3, 1/6."""

    @wind_tunnel(stream="letter")
    def letters(length=4):
        weights = numpyro.sample("weights", dist.Dirichlet(jnp.ones(3)))
        with numpyro.plate("letters", length):
            numpyro.sample("letter", dist.Categorical(weights))

    law = oracle_of(letters).predictive(letters.episodes(stream={"letter": [[0, 1, 0, 2]]})).to_numpy()[0]
    np.testing.assert_allclose(law[3], [1 / 2, 1 / 3, 1 / 6], **EXACT)
    assert law[0, 0] * law[1, 1] * law[2, 0] == pytest.approx(1 / 30, rel=1e-12)


@wind_tunnel(stream="events", context="exposure")
def counts(length=4):
    """A gamma rate, rescaled in the program, with exposures that differ from step to step and episode to episode."""
    exposure = numpyro.sample("exposure", dist.Uniform(0.5, 2.0).expand([length]).to_event(1))
    rate = numpyro.sample("rate", dist.Gamma(2.0, 3.0))
    with numpyro.plate("windows", length):
        numpyro.sample("events", dist.Poisson(5 * rate * exposure))


@pytest.mark.slow
def test_counts_with_exposures() -> None:
    """Would catch an exposure left out, or a rescaled rate taken for the rate."""
    few = counts.probe[:5]
    events, exposure = np.asarray(few.stream["events"]), 5 * np.asarray(few.context["exposure"])
    before = [np.cumsum(each, axis=1) - each for each in (events, exposure)]
    shape, rate = 2 + before[0], 3 + before[1]
    law = oracle_of(counts).predictive(few)
    assert isinstance(law, dist.GammaPoisson)
    right = scipy.stats.nbinom.logpmf(events, shape, rate / (rate + exposure))
    np.testing.assert_allclose(law.log_prob(few.stream["events"]), right, rtol=1e-11)
    np.testing.assert_allclose(oracle_of(counts).log_evidence(few), right.sum(axis=1), rtol=1e-11)
    posterior = oracle_of(counts).posterior(few, "rate").to_numpy()
    np.testing.assert_allclose(posterior["concentration"][:, -1], 2 + events.sum(axis=1), **EXACT)
    np.testing.assert_allclose(posterior["rate"][:, -1], 3 + exposure.sum(axis=1), **EXACT)


@pytest.mark.slow
def test_a_precision_gives_students_law() -> None:
    """Would catch degrees of freedom off by a factor of two, and an inverse-gamma prior taken for a gamma."""

    @wind_tunnel(stream="reading", predict="reading")
    def instrument(length=4):
        variance = numpyro.sample("variance", dist.InverseGamma(2.0, 3.0))
        with numpyro.plate("readings", length):
            numpyro.sample("reading", dist.Normal(1.5, jnp.sqrt(variance) / 2))

    few = instrument.probe[:5]
    square = 4 * (np.asarray(few.stream["reading"]) - 1.5) ** 2 / 2
    shape, rate = 2 + np.arange(4) / 2, 3 + np.cumsum(square, axis=1) - square
    right = scipy.stats.t.logpdf(few.stream["reading"], 2 * shape, 1.5, np.sqrt(rate / shape) / 2)
    np.testing.assert_allclose(oracle_of(instrument).predictive(few).log_prob(few.stream["reading"]), right, rtol=1e-11)


@wind_tunnel(stream=("shade", "heads", "events"), predict="events")
def several(length=4):
    """Two conjugate parts that do not meet, a finite latent over both, and a finite latent within each step."""
    fair = numpyro.sample("fair", dist.Bernoulli(0.4))
    bias = numpyro.sample("bias", dist.Beta(2.0, 1.0))
    rate = numpyro.sample("rate", dist.Gamma(2.0, 1.0 + fair))
    with numpyro.plate("steps", length):
        numpyro.sample("shade", dist.Categorical(jnp.array([[0.2, 0.3, 0.5], [0.6, 0.3, 0.1]])[fair]))
        numpyro.sample("heads", dist.Bernoulli(jnp.where(fair == 1, 0.5, bias)))
        numpyro.sample("events", dist.Poisson(rate))


@pytest.mark.slow
def test_parts_and_a_finite_latent_over_them() -> None:
    """Would catch hypotheses weighted by the evidence of one part only, or by a step's sites that come later."""
    few = several.probe[:6]
    shade, heads, events = (np.asarray(few.stream[name]) for name in ("shade", "heads", "events"))
    table, steps = np.array([[0.2, 0.3, 0.5], [0.6, 0.3, 0.1]]), np.arange(1, 5)
    total = np.zeros((2, 6, 5))  # log joint of fair and everything up to each step
    for fair in (0, 1):
        ones = np.cumsum(heads, axis=1)
        of_heads = steps * np.log(0.5) if fair else betaln(2 + ones, 1 + steps - ones) - betaln(2, 1)
        sums = np.cumsum(events, axis=1)
        of_events = gammaln(2 + sums) - gammaln(2) + 2 * np.log(1 + fair) - (2 + sums) * np.log(1 + fair + steps)
        of_events = of_events - np.cumsum(gammaln(events + 1), axis=1)
        of_shades = np.cumsum(np.log(table[fair][shade]), axis=1)
        total[fair, :, 0] = np.log([0.6, 0.4][fair])
        total[fair, :, 1:] = total[fair, :, :1] + of_shades + of_heads + of_events
    oracle = oracle_of(several)
    right = np.exp(total - np.logaddexp(*total))
    np.testing.assert_allclose(oracle.posterior(few, "fair").to_numpy(), np.moveaxis(right, 0, -1), rtol=1e-11)
    np.testing.assert_allclose(oracle.log_evidence(few), np.logaddexp(*total)[:, -1], rtol=1e-12)
    chained = sum(np.asarray(oracle.predictive(few, site).log_prob(few.stream[site])) for site in several.stream)
    np.testing.assert_allclose(chained.sum(axis=1), np.logaddexp(*total)[:, -1], rtol=1e-11)
    assert oracle.posterior(few, "rate").batch_shape == (6, 5)


@pytest.mark.slow
def test_a_latent_within_the_step_is_summed_before_solving() -> None:
    """Would catch the finite latent's prior left out of the sum, and its posterior not weighted by the step's evidence."""

    @wind_tunnel(stream=("mark", "heads"), predict="kind")
    def marked(length=3):
        bias = numpyro.sample("bias", dist.Beta(1.0, 2.0))
        with numpyro.plate("steps", length):
            kind = numpyro.sample("kind", dist.Bernoulli(0.3))
            numpyro.sample("mark", dist.Categorical(jnp.array([[0.7, 0.2, 0.1], [0.1, 0.3, 0.6]])[kind]))
            numpyro.sample("heads", dist.Bernoulli(bias))

    few = marked.probe[:6]
    joint = np.array([0.7, 0.3])[:, None] * np.array([[0.7, 0.2, 0.1], [0.1, 0.3, 0.6]])
    right = (joint / joint.sum(axis=0))[:, np.asarray(few.stream["mark"])]
    np.testing.assert_allclose(oracle_of(marked).predictive(few).to_numpy(), np.moveaxis(right, 0, -1), **EXACT)
    shown = oracle_of(marked).predictive(few, "mark").to_numpy()
    np.testing.assert_allclose(shown, np.broadcast_to(joint.sum(axis=0), shown.shape), **EXACT)


@wind_tunnel(stream=("cue", "heads"))
def squared_sometimes(length=3):
    bias = numpyro.sample("bias", dist.Beta(1.0, 1.0))
    with numpyro.plate("steps", length):
        cue = numpyro.sample("cue", dist.Bernoulli(1e-6))
        numpyro.sample("heads", dist.Bernoulli(jnp.where(cue == 1, bias**2, bias)))


@wind_tunnel(stream="heads")
def depends_on_another(length=3):
    strength = numpyro.sample("strength", dist.Gamma(2.0, 1.0))
    bias = numpyro.sample("bias", dist.Beta(strength, 1.0))
    with numpyro.plate("steps", length):
        numpyro.sample("heads", dist.Bernoulli(bias))


@wind_tunnel(stream="heads")
def logistic(length=3):
    slope = numpyro.sample("slope", dist.Normal(0.0, 1.0))
    with numpyro.plate("steps", length):
        numpyro.sample("heads", dist.Bernoulli(logits=slope))


@pytest.mark.parametrize(
    ("tunnel", "words"),
    [
        (squared_sometimes, "'heads' is not conjugate to the prior of 'bias'"),
        (depends_on_another, "'bias' depends on another continuous latent"),
        (logistic, "'slope' is a Normal"),
    ],
)
def test_what_is_not_conjugate_is_refused(tunnel, words) -> None:
    """Would catch conjugacy judged by the class of the laws, or by data in which the exception does not come up."""
    with pytest.raises(NoEngineError) as refusal:
        derive(tunnel)
    assert words in str(refusal.value).replace("'strength', 'bias'", "'bias'")
    assert "discretise" in str(refusal.value)


def test_data_for_which_the_program_is_not_conjugate_are_refused_when_they_come() -> None:
    """Would catch a check made once, when deriving, in a program whose exception hangs on a rare real number."""

    @wind_tunnel(stream="heads", context="strain")
    def breaks(length=3):
        strain = numpyro.sample("strain", dist.Normal(0.0, 1.0))
        bias = numpyro.sample("bias", dist.Beta(1.0, 1.0))
        with numpyro.plate("steps", length):
            numpyro.sample("heads", dist.Bernoulli(jnp.where(strain > 7, bias**2, bias)))

    given = {"heads": [[1, 0, 1]]}
    assert np.isfinite(
        oracle_of(breaks).predictive(breaks.episodes(stream=given, context={"strain": [1.0]})).log_probs
    ).all()
    with pytest.raises(TunnelError, match=r"'heads' is undefined.*holds for other data"):
        oracle_of(breaks).predictive(breaks.episodes(stream=given, context={"strain": [8.0]}))
