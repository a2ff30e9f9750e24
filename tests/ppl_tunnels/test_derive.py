"""Choosing an engine, and saying why none applies."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

from ppl_tunnels import load_tunnel, wind_tunnel
from ppl_tunnels.errors import NoEngineError
from ppl_tunnels.oracles import derive as derivation
from ppl_tunnels.oracles.derive import ENGINES, derive


def small_coin():
    return load_tunnel("coin").configure(length=2, points=3)


def test_the_first_engine_that_applies_is_taken(monkeypatch):
    """Would catch an order of preference that is not followed, and an engine asked for by name that is not used."""
    assert small_coin().oracle().engine == "enumeration"
    bijection = load_tunnel("bijection").configure(size=3, length=2)
    assert bijection.oracle().engine == "closed form"
    assert derive(bijection, engine="enumeration").engine == "enumeration"
    monkeypatch.setattr(derivation, "ENGINES", {"refusing": lambda tunnel: "it never applies", **ENGINES})
    assert derive(small_coin()).engine == "enumeration"


def test_refusals_list_every_engines_condition():
    """Would catch an error that says what failed without saying what to do."""

    @wind_tunnel(stream="x")
    def bent(length=2):
        bias = numpyro.sample("bias", dist.Uniform(0.0, 1.0))
        with numpyro.plate("n", length):
            numpyro.sample("x", dist.Bernoulli(bias**2))

    with pytest.raises(NoEngineError) as refusal:
        bent.oracle()
    lines = str(refusal.value).splitlines()
    assert "'bent'" in lines[0] and len(lines) == 2 + len(ENGINES)
    for line, name in zip(lines[1:-1], ENGINES, strict=True):
        assert line.strip().startswith(f"{name}: ")
    assert (
        lines[-1].startswith("What to do: ")
        and "closed_form=" in lines[1]
        and "'bias'" in str(refusal.value)
        and "discretise" in str(refusal.value)
    )


def test_unknown_engines_are_refused():
    """Would catch a misspelt engine silently replaced by another."""
    with pytest.raises(NoEngineError, match="engine='enumerate' is not an engine; choose one of .*enumeration"):
        derive(small_coin(), engine="enumerate")


def test_deriving_inside_a_single_precision_jit_is_done_in_double_precision():
    """Would catch supports and constants of the oracle made in the caller's mode."""
    tunnel = load_tunnel("coin").configure(length=2, points=4)
    derived = []
    with jax.enable_x64(False):
        jax.jit(lambda x: derived.append(tunnel.oracle()) or x)(jnp.zeros(()))
    law = derived[0].predictive(tunnel.episodes(stream={"flip": np.array([[1, 1]])}))
    np.testing.assert_allclose(law.to_numpy()[0, :, 1], [1 / 2, (0 + 1 + 4 + 9) / 9 / (0 + 1 + 2 + 3) * 3], atol=1e-15)
