"""Listing the values of one draw, and joint values by one integer."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

from ppl_tunnels.distributions import RandomPermutation
from ppl_tunnels.oracles.support import MOST_LISTED_VALUES, JointSupport, listed_support
from ppl_tunnels.program import Site


def site(support, batch, event=()):
    support = np.asarray(support)
    return Site("z", "latent", False, None, (*batch, *event), len(event), int, support, len(support), None)


@pytest.mark.parametrize(
    ("law", "values"),
    [
        (lambda: dist.Categorical(jnp.ones((4, 3)) / 3), [0, 1, 2]),
        (lambda: dist.Bernoulli(0.5).expand([7]), [0, 1]),
        (lambda: dist.Binomial(3, jnp.array([0.1, 0.9])), [0, 1, 2, 3]),
        (lambda: dist.DiscreteUniform(2, 4), [2, 3, 4]),
        (lambda: dist.Bernoulli(0.5).expand([2]).to_event(1), [[0, 0], [0, 1], [1, 0], [1, 1]]),
        (lambda: dist.Categorical(jnp.ones((5, 2, 2)) / 2).to_event(1), [[0, 0], [0, 1], [1, 0], [1, 1]]),
        (lambda: dist.Categorical(jnp.ones((1, 70, 1))).to_event(1), [[0] * 70]),
    ],
)
def test_every_value_of_one_draw(law, values):
    """Would catch a vector law listed by one element's values, which silently drops the vectors whose elements differ."""
    listed, size = listed_support(law())
    assert listed.tolist() == values and size == len(values)


@pytest.mark.parametrize(
    ("law", "size"),
    [
        (lambda: dist.Normal(0.0, 1.0), None),
        (lambda: dist.Poisson(1.0), None),
        (lambda: dist.Binomial(jnp.array([2, 3]), 0.5), None),
        (lambda: RandomPermutation(20), 2432902008176640000),
        (lambda: dist.Bernoulli(0.5).expand([40]).to_event(1), 2**40),
        (lambda: dist.Normal(0.0, 1.0).expand([2]).to_event(1), None),
    ],
)
def test_what_cannot_be_listed_says_how_many_it_is(law, size):
    """Would catch an attempt to list 20! permutations, and elements of unlike supports treated as alike."""
    assert listed_support(law()) == (None, size)
    assert size is None or size > MOST_LISTED_VALUES


def test_joint_values_are_each_visited_once():
    """Would catch a wrong radix: joint values missed, and others counted twice."""
    joint = JointSupport({"a": site([3, 5], (2,)), "b": site([[0, 1], [1, 0], [2, 2]], (), (2,))})
    assert joint.size == 2 * 2 * 3
    values = jax.vmap(lambda index: joint.values(joint.digits(index)))(jnp.arange(joint.size))
    assert values["a"].shape == (12, 2) and values["b"].shape == (12, 2)
    found = {(*a, *b) for a, b in zip(values["a"].tolist(), values["b"].tolist(), strict=True)}
    assert found == {(*a, *b) for a in itertools.product([3, 5], repeat=2) for b in [(0, 1), (1, 0), (2, 2)]}


def test_no_latents_are_one_hypothesis():
    """Would catch a program without latents being given no hypothesis at all, and so no law."""
    joint = JointSupport({})
    assert joint.size == 1 and joint.digits(jnp.array(0)) == {}
