"""Long and large programs, and how long deriving takes; run by hand with `pytest -m slow -s tests/benchmarks -n 0`."""

import subprocess
import sys
import textwrap
import time

import pytest

from ppl_tunnels import load_tunnel
from ppl_tunnels.oracles.derive import derive

pytestmark = pytest.mark.slow

MILLION = """
    import resource

    import jax
    import jax.numpy as jnp
    import numpy as np
    import numpyro
    import numpyro.distributions as dist
    from ppl_tunnels import wind_tunnel

    @wind_tunnel(stream="y")
    def two(length=10, points=1_000):
        a = numpyro.sample("a", dist.Categorical(jnp.ones(points) / points))
        b = numpyro.sample("b", dist.Categorical(jnp.ones(points) / points))
        with numpyro.plate("step", length):
            numpyro.sample("y", dist.Bernoulli((a + 0.5) * (b + 0.5) / points**2))

    seen = two.episodes(stream={"y": np.array([[1, 0, 1, 1, 0, 0, 1, 0, 0, 1]] * 8)})
    oracle = two.oracle()
    said = oracle.predictive(seen).to_numpy()[0, -1, 1]
    # The product of two independent uniform grids, in closed form up to the sum over the grid.
    grid = np.outer(np.arange(1_000) + 0.5, np.arange(1_000) + 0.5).ravel() / 1e6
    weight = grid**4 * (1 - grid) ** 5
    right = (weight * grid).sum() / weight.sum()
    gib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(oracle.engine, abs(said / right - 1), gib)
"""


def test_a_million_hypotheses_within_four_gibibytes() -> None:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(MILLION)], capture_output=True, text=True, check=True, timeout=1800
    )
    engine, error, gib = done.stdout.split()
    print(f"\n{engine}: relative error {float(error):.1e}, {float(gib):.2f} GiB")
    assert engine == "enumeration" and float(error) < 1e-12 and float(gib) < 4


@pytest.mark.parametrize("name", ["coin", "bijection"])
def test_deriving_takes_seconds(name) -> None:
    """Of a tunnel at its own size; reading the program comes before."""
    tunnel = load_tunnel(name)
    start = time.perf_counter()
    assert len(tunnel.reading.sites) > 0
    read = time.perf_counter()
    oracle = derive(tunnel)
    done = time.perf_counter()
    print(f"\n{name}: read in {read - start:.2f} s, derived by {oracle.engine} in {done - read:.2f} s")
    assert done - read < 5
