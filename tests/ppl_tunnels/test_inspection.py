"""What a program contains, and every construct that has no exact oracle, refused by name with the remedy."""

import random

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers
from numpyro.contrib.control_flow import cond, scan

from ppl_tunnels.errors import TunnelError
from ppl_tunnels.inspection import inspect_program, moving_supports
from ppl_tunnels.program import compile_time

COIN = dist.Bernoulli(0.5)


def in_scan(inner):
    def body(carry, _):
        inner()
        return carry, numpyro.sample("x", COIN)

    scan(body, 0.0, None, length=2)


def branch(_):
    return numpyro.sample("z", COIN)


def subsampled():
    with numpyro.plate("n", 10, subsample_size=5):
        numpyro.sample("x", COIN)


def scaled():
    with handlers.scale(scale=2.0):
        numpyro.sample("x", COIN)


def masked():
    with handlers.mask(mask=jnp.array(True)):
        numpyro.sample("x", COIN)


REFUSED = {
    "param": (lambda: numpyro.param("theta", 0.5), ["theta", "keyword argument"]),
    "prng_key": (lambda: numpyro.prng_key(), ["prng_key", "numpyro.sample"]),
    "subsampling": (subsampled, ["plate 'n'", "5 of 10", "drop subsample_size"]),
    "cond": (lambda: cond(True, branch, branch, None), ["cond()", "jnp.where"]),
    "scan in scan": (lambda: in_scan(lambda: in_scan(lambda: None)), ["scan inside a scan", "unroll"]),
    "factor": (lambda: numpyro.factor("weight", -1.0), ["'weight'", "unnormalised", "sample site"]),
    "factor in a scan": (lambda: in_scan(lambda: numpyro.factor("weight", -1.0)), ["'weight'", "unnormalised"]),
    "scale": (scaled, ["'x'", "handlers.scale", "remove the scale"]),
    "mask": (masked, ["'x'", "masked", "visible="]),
    "mask method": (lambda: numpyro.sample("x", COIN.mask(False)), ["'x'", "masked", "visible="]),
    "observed": (lambda: numpyro.sample("x", COIN, obs=1), ["'x'", "obs=", "tunnel.episodes"]),
    "observed in a scan": (
        lambda: in_scan(lambda: numpyro.sample("y", COIN, obs=1)),
        ["'y'", "obs=", "tunnel.episodes"],
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusals_name_the_construct_and_the_remedy(case):
    """Would catch a construct that changes the density, accepted silently or refused without help."""
    program, words = REFUSED[case]
    with pytest.raises(TunnelError) as refusal:
        inspect_program(program, jax.random.key(0))
    assert all(word in str(refusal.value) for word in words), str(refusal.value)


def test_sites_come_in_program_order_with_their_scan():
    """Would catch a scan's sites missing (its body is hidden from outer handlers), or out of order."""

    def program():
        numpyro.sample("a", COIN)
        in_scan(lambda: numpyro.sample("b", COIN))
        numpyro.deterministic("d", jnp.zeros(2))
        numpyro.sample("c", COIN)

    record = inspect_program(program, jax.random.key(0))
    assert record.order == ["a", "b", "x", "c"]
    assert record.scan_of == {"b": 0, "x": 0}
    assert record.deterministic == {"d"}


def test_scans_are_told_apart():
    """Would catch two scans taken for one step axis."""

    def program():
        for name in "ab":
            scan(lambda carry, _, name=name: (carry, numpyro.sample(name, COIN)), 0.0, None, length=2)

    assert inspect_program(program, jax.random.key(0)).scan_of == {"a": 0, "b": 1}


def counts_in_scan(count):
    def body(n, _):
        numpyro.sample("k", dist.Binomial(count(n), 0.5))
        return n, None

    scan(body, numpyro.sample("n", COIN), None, length=2)


@pytest.mark.parametrize(
    ("program", "moving"),
    [
        (lambda: numpyro.sample("k", dist.Binomial(1 + numpyro.sample("n", COIN), 0.5)), {"k"}),
        (lambda: numpyro.sample("k", dist.Uniform(0.0, 1.0 + numpyro.sample("n", COIN))), {"k"}),
        (lambda: numpyro.sample("k", dist.Binomial(jnp.asarray(2) + 1, numpyro.sample("n", COIN) / 2)), set()),
        (lambda: counts_in_scan(lambda n: 1 + n), {"k"}),
        (lambda: counts_in_scan(lambda n: jnp.asarray(2) + 1), set()),
    ],
)
def test_supports_that_depend_on_drawn_values(program, moving):
    """Would catch a support fixed by what a few runs happened to draw: the other hypotheses would be lost silently."""
    with compile_time():
        assert moving_supports(program, jax.random.key(0)) == moving


def test_inspection_does_not_touch_the_program():
    """Would catch an inspector that draws other values than the program does on its own."""

    def program():
        return numpyro.sample("z", dist.Normal(0.0, 1.0))

    random.seed(0)
    record = inspect_program(program, jax.random.key(3))
    assert record.trace["z"]["value"] == handlers.seed(program, jax.random.key(3))()
