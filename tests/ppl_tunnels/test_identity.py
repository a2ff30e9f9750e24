"""A program's fingerprint moves with everything its law depends on, and with nothing else."""

import functools

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.contrib.control_flow import scan

from ppl_tunnels.identity import program_fingerprint

TABLE = [0.5, 0.5]
NESTED = {"rows": [[0.1, 0.9]], "law": functools.partial(pow, 2)}
PRIOR = dist.Bernoulli(jnp.array(0.25))
UNRELATED = 1


def helper(state):
    return jnp.asarray(TABLE)[state]


def program():
    def body(state, _):
        return numpyro.sample("x", dist.Bernoulli(helper(state) * NESTED["rows"][0][0])), None

    scan(body, numpyro.sample("start", PRIOR), None, length=2)


def fingerprint():
    return program_fingerprint(program, "extra")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TABLE", [0.5, 0.25]),
        ("NESTED", {"rows": [[0.2, 0.9]], "law": functools.partial(pow, 2)}),
        ("PRIOR", dist.Bernoulli(jnp.array(0.75))),
        ("helper", lambda state: state / 3),
    ],
)
def test_what_a_scan_body_refers_to_counts(monkeypatch, name, value):
    """Would catch two programs with one fingerprint: the globals of an inner function, and what containers and laws hold."""
    before = fingerprint()
    monkeypatch.setitem(globals(), name, value)
    assert fingerprint() != before


def test_nothing_else_counts(monkeypatch):
    """Would catch a certificate that goes stale for no reason: addresses in memory, globals of other functions."""
    before = fingerprint()
    monkeypatch.setitem(globals(), "UNRELATED", 2)
    monkeypatch.setitem(globals(), "NESTED", {"rows": [[0.1, 0.9]], "law": functools.partial(pow, 2)})
    assert fingerprint() == before
    assert program_fingerprint(program, "other configuration") != before


def test_captured_arrays_count_to_the_last_bit():
    """Would catch a large array described by an abbreviation."""

    def capture(array):
        def program():
            return array

        return program_fingerprint(program, "")

    ones = jnp.ones(10_000)
    assert capture(ones) == capture(ones + 0)
    assert capture(ones) != capture(ones.at[5_000].add(1e-15))
    assert capture(ones) != capture(ones.astype(jnp.float32))
    assert capture([ones]) != capture([ones, 1])
