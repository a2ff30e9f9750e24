"""How fast filtering is, as ratios of times taken in turn in one run; run by hand with `pytest -m slow -s tests/benchmarks -n 0`.

The task: 10,000 episodes of a hidden Markov model of 5 states and 5 symbols, 20 steps, parameters of their own in every episode,
in double precision. `dynamax` is compared where it is installed (`uv sync --group comparisons`).
"""

import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.contrib.control_flow import scan
from scipy.special import logsumexp

from ppl_tunnels import wind_tunnel
from ppl_tunnels.oracles.derive import derive

pytestmark = pytest.mark.slow

STATES, SYMBOLS, STEPS, EPISODES = 5, 5, 20, 10_000
# Episodes that the NumPy loop is timed on: it takes the same time for each.
LOOPED = 50


@wind_tunnel(stream="symbol", context=("rows", "emit"))
def hmm(length=STEPS):
    """Parameters revealed per episode; emit, then move."""
    rows = numpyro.sample("rows", dist.Dirichlet(jnp.ones(STATES)).expand([STATES]).to_event(1))
    emit = numpyro.sample("emit", dist.Dirichlet(jnp.ones(SYMBOLS)).expand([STATES]).to_event(1))

    def step(state, _):
        numpyro.sample("symbol", dist.Categorical(emit[state]))
        return numpyro.sample("state", dist.Categorical(rows[state])), None

    scan(step, numpyro.sample("start", dist.Categorical(jnp.ones(STATES) / STATES)), None, length=length)


@pytest.fixture(scope="module")
def episodes():
    return hmm.sample(jax.random.key(0), EPISODES)


@pytest.fixture(scope="module")
def oracle():
    return derive(hmm, "filtering")


def seconds(*functions: Callable[[], Any], rounds: int = 30) -> list[float]:
    """The least time each takes, measured in turn so that all meet the same machine."""
    for function in functions:
        jax.block_until_ready(function())
    best = [np.inf] * len(functions)
    for _ in range(rounds):
        for place, function in enumerate(functions):
            start = time.perf_counter()
            jax.block_until_ready(function())
            best[place] = min(best[place], time.perf_counter() - start)
    return best


def looped(rows: np.ndarray, emit: np.ndarray, symbols: np.ndarray) -> float:
    """log p(symbols), by the loop over steps and states that people write first."""
    alpha = np.full(STATES, -np.log(STATES))
    log_rows, log_emit = np.log(rows), np.log(emit)
    for symbol in symbols:
        seen = alpha + log_emit[:, symbol]
        alpha = np.array([logsumexp(seen + log_rows[:, state]) for state in range(STATES)])
    return float(logsumexp(alpha))


def test_at_least_as_fast_as_dynamax(oracle, episodes) -> None:
    """Its filter gives the evidence and the beliefs; ours the evidence, or the law of the next symbol from raw episodes."""
    hmm_filter = pytest.importorskip("dynamax.hidden_markov_model").hmm_filter
    rows, emit = (jnp.asarray(episodes.context[name]) for name in ("rows", "emit"))
    symbols = jnp.asarray(episodes.stream["symbol"])
    start = jnp.ones(STATES) / STATES

    @jax.jit
    def dynamax(rows, emit, symbols):
        def one(rows, emit, symbols):
            filtered = hmm_filter(start, rows, jnp.log(emit[:, symbols]).T)
            return filtered.marginal_loglik, filtered.predicted_probs, filtered.filtered_probs

        return jax.vmap(one)(rows, emit, symbols)

    np.testing.assert_allclose(oracle.log_evidence(episodes), dynamax(rows, emit, symbols)[0], rtol=1e-10)
    theirs, evidence, law, belief = seconds(
        lambda: dynamax(rows, emit, symbols),
        lambda: oracle.log_evidence(episodes),
        lambda: oracle.derived.predictive(episodes, "symbol", None).log_probs,
        lambda: oracle.derived.posterior(episodes, "state", None).log_probs,
    )
    print(
        f"\ndynamax {theirs * 1e3:.1f} ms; evidence {evidence * 1e3:.1f} ms, next symbol {law * 1e3:.1f} ms, state {belief * 1e3:.1f} ms"
    )
    assert evidence <= theirs


def test_hundreds_of_times_faster_than_the_numpy_loop(oracle, episodes) -> None:
    few = episodes[:LOOPED].to_numpy()
    given = few.context["rows"], few.context["emit"], few.stream["symbol"]
    start = time.perf_counter()
    said = [looped(*each) for each in zip(*given, strict=True)]
    loop = (time.perf_counter() - start) * EPISODES / LOOPED
    np.testing.assert_allclose(oracle.log_evidence(episodes)[:LOOPED], said, rtol=1e-12)
    (ours,) = seconds(lambda: oracle.derived.predictive(episodes, "symbol", None).log_probs)
    print(f"\nNumPy loop {loop:.1f} s, next symbol {ours * 1e3:.1f} ms: {loop / ours:,.0f} times")
    assert loop >= 300 * ours


@pytest.mark.parametrize("width", [1, 2, 4, 8])
def test_a_band_costs_little(oracle, episodes, width) -> None:
    age = np.arange(STEPS)[:, None] - np.arange(STEPS)
    visible = (age >= 1) & (age <= width)
    none, band = seconds(
        lambda: oracle.derived.predictive(episodes, "symbol", None).log_probs,
        lambda: oracle.derived.predictive(episodes, "symbol", visible).log_probs,
    )
    print(f"\nno mask {none * 1e3:.1f} ms, a memory of {width} steps {band * 1e3:.1f} ms: {band / none:.2f} times")
    assert band <= 3 * none
