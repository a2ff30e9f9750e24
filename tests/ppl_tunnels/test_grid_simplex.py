"""Rows on a grid: the published rounding, entry by entry, and a law that may only be conditioned on."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

from ppl_tunnels import wind_tunnel
from ppl_tunnels.errors import TunnelError
from ppl_tunnels.grid_simplex import RoundedDirichlet


def by_hand(row, floor=5, units=100):
    """The published procedure as its authors wrote it, one grid step at a time; ties in order of place."""
    high = np.maximum(row, floor / units)
    cents = np.maximum(np.rint(high / high.sum() * units).astype(int), floor)
    missing, turn = units - cents.sum(), 0
    order = sorted(range(len(row)), key=lambda entry: cents[entry] if missing > 0 else -cents[entry])
    while missing:
        entry = order[turn % len(row)]
        if missing > 0 or cents[entry] > floor:
            cents[entry] += np.sign(missing)
            missing -= np.sign(missing)
        turn += 1
    return cents / units


@pytest.mark.parametrize("size", [1, 2, 5, 8])
def test_rows_are_the_published_ones(size):
    """Would catch the excess taken from the wrong entries, in the wrong order, or below the floor."""
    rows = np.random.default_rng(size).dirichlet(np.full(size, 0.6), size=3_000)
    rows[:3] = np.eye(size)[0]
    np.testing.assert_array_equal(RoundedDirichlet(size).rounded(jnp.asarray(rows)), [by_hand(row) for row in rows])


@pytest.mark.parametrize("concentration", [1.0, 0.3])
def test_the_law(concentration):
    """Against NumPy's Dirichlet through the same rounding: means of the sorted entries within five standard errors."""
    law, n = RoundedDirichlet(4, concentration), 20_000
    own = np.sort(np.asarray(law.sample(jax.random.key(3), (n,))), axis=1)
    other = np.sort([by_hand(row) for row in np.random.default_rng(4).dirichlet([concentration] * 4, size=n)], axis=1)
    spread = np.sqrt((own.var(axis=0) + other.var(axis=0)) / n)
    assert (np.abs(own.mean(axis=0) - other.mean(axis=0)) < 5 * spread).all()
    assert np.asarray(law.support(own)).all()


def test_support():
    """Would catch sums such as .1 + .2 refused, and rows off the grid accepted."""
    law = RoundedDirichlet(3)
    good, off = jnp.array([0.1 + 0.2, 0.65, 0.05]), [[0.303, 0.647, 0.05], [0.04, 0.9, 0.06], [0.3, 0.3, 0.3]]
    assert law.support(good) and not np.asarray(law.support(jnp.array(off))).any()
    assert float(law.log_prob(good)) == 0 and np.isneginf(law.log_prob(jnp.array(off))).all()
    assert law.element_support[[0, -1]].tolist() == [0.05, 1.0] and len(law.element_support) == 96
    assert law.support.grid_size == sum(
        87 - first for first in range(1, 87)
    )  # of the first two entries, 5 … 90 hundredths
    assert law.support(law.support.feasible_like(jnp.zeros(3)))


@pytest.mark.parametrize(
    "options", [{"size": 21}, {"size": 3, "floor": 0.055}, {"size": 3, "step": 0.03}, {"size": 3, "concentration": 0.0}]
)
def test_refusals(options):
    """Would catch rows that cannot sum to one, and grids that miss it."""
    with pytest.raises(ValueError, match="RoundedDirichlet was given size="):
        RoundedDirichlet(**options)


def test_it_must_be_revealed():
    """Would catch a posterior weighed by a log_prob that is none."""

    def program(length=2):
        row = numpyro.sample("row", RoundedDirichlet(3))
        with numpyro.plate("n", length):
            numpyro.sample("x", dist.Categorical(row))

    with pytest.raises(TunnelError, match="latent site 'row' is a RoundedDirichlet.*reveal it up front"):
        wind_tunnel(stream="x")(program).reading  # noqa: B018
    tunnel = wind_tunnel(stream="x", context="row")(program)
    np.testing.assert_allclose(tunnel.oracle().predictive(tunnel.probe).to_numpy()[:, 1], tunnel.probe.context["row"])
    with pytest.raises(TunnelError, match="row"):
        tunnel.episodes(stream={"x": [[0, 1]]}, context={"row": [[0.333, 0.333, 0.334]]})
