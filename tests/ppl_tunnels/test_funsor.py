"""The evidence of hidden Markov programs against funsor's enumerated log density, where it is installed.

Run by hand: `uv sync --group comparisons`, then `pytest -m slow -n 0 tests/ppl_tunnels/test_funsor.py`. Funsor's variable elimination shares
nothing with the engines; it needs programs that broadcast, which these do.
"""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.contrib.control_flow import scan

from ppl_tunnels import wind_tunnel
from ppl_tunnels.oracles.derive import derive

pytestmark = pytest.mark.slow

KINDS = {
    "sticky": ([[0.8, 0.2, 0.0], [0.1, 0.6, 0.3], [0.3, 0.3, 0.4]], [[0.7, 0.3], [0.5, 0.5], [0.1, 0.9]]),
    "one state": ([[1.0]], [[0.25, 0.75]]),
    "absorbing": ([[0.7, 0.3], [0.0, 1.0]], [[0.9, 0.1], [0.2, 0.8]]),
    "deterministic": ([[0.0, 1.0], [1.0, 0.0]], [[0.6, 0.4], [0.3, 0.7]]),
}


@wind_tunnel(stream="y")
def hmm(length=4, kind="sticky"):
    """Move, then emit."""
    rows, emit = map(jnp.array, KINDS[kind])

    def step(state, _):
        state = numpyro.sample("state", dist.Categorical(rows[state]))
        numpyro.sample("y", dist.Categorical(emit[state]))
        return state, None

    scan(step, numpyro.sample("start", dist.Categorical(jnp.ones(len(rows)) / len(rows))), None, length=length)


def enumerated_log_evidence(kind: str, symbols: np.ndarray) -> float:
    """The same program, its scan unrolled, with its stream observed and its latents summed out by funsor."""
    from numpyro.contrib.funsor import config_enumerate, enum, log_density

    rows, emit = map(jnp.array, KINDS[kind])

    def model(symbols):
        state = numpyro.sample(
            "start", dist.Categorical(jnp.ones(len(rows)) / len(rows)), infer={"enumerate": "parallel"}
        )
        for step, symbol in enumerate(symbols):
            state = numpyro.sample(f"state {step}", dist.Categorical(rows[state]), infer={"enumerate": "parallel"})
            numpyro.sample(f"y {step}", dist.Categorical(emit[state]), obs=symbol)

    return float(log_density(enum(config_enumerate(model), first_available_dim=-1), (symbols,), {}, {})[0])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("length", [1, 2, 12])
def test_the_evidence_equals_funsors(kind, length) -> None:
    pytest.importorskip("funsor")
    tunnel = hmm.configure(length=length, kind=kind)
    episodes = tunnel.sample(jax.random.key(length), 2)
    said = np.asarray(derive(tunnel, "filtering").log_evidence(episodes))
    right = [enumerated_log_evidence(kind, jnp.asarray(row)) for row in np.asarray(episodes.stream["y"])]
    np.testing.assert_allclose(said, right, rtol=1e-12)
