"""Declaring, configuring, sampling."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers

from ppl_tunnels import load_tunnel, wind_tunnel
from ppl_tunnels.errors import TunnelError

PROGRAMS = Path(__file__).with_name("programs.py")


def load(name):
    return load_tunnel(f"{PROGRAMS}:{name}")


def flips(length=3, heads=0.5):
    with numpyro.plate("n", length):
        numpyro.sample("x", dist.Bernoulli(heads))
        numpyro.sample("y", dist.Bernoulli(heads))


def flips_in_rows(length=3):
    with numpyro.plate("row", 2, dim=-2), numpyro.plate("n", length, dim=-1):
        numpyro.sample("x", dist.Bernoulli(0.5))


def test_the_last_stream_site_is_predicted_by_default():
    """Would catch a default that predicts a key instead of its value."""
    assert wind_tunnel(stream=("x", "y"))(flips).predict == "y"
    assert wind_tunnel(stream="x")(flips).stream == ("x",)
    assert load("umbrella").predict == "rain"


def test_configure_gives_a_new_tunnel_and_leaves_the_old():
    """Would catch settings changed in place, under everybody who holds the tunnel."""
    short = wind_tunnel(stream="x")(flips)
    long = short.configure(length=np.int64(5))
    assert (short.length, long.length) == (3, 5)
    assert long.configuration == {"length": 5, "heads": 0.5} and type(long.configuration["length"]) is int
    assert short != long and short == long.configure(length=3) and hash(short) == hash(long.configure(length=3))
    assert short.configure(heads=(0.1, [0.2])).configuration["heads"] == (0.1, (0.2,))


REFUSED = {
    "no stream": (lambda: wind_tunnel(stream=()), ["stream is empty"]),
    "unknown primitive": (
        lambda: wind_tunnel(stream="x", primitives={"magic"}),
        ["magic", "accumulation, transport, binding"],
    ),
    "parameter without default": (lambda: wind_tunnel(stream="x")(lambda data: None), ["'data'", "without a default"]),
    "starred parameter": (lambda: wind_tunnel(stream="x")(lambda *args: None), ["'*args'", "without a default"]),
    "array as a setting": (
        lambda: wind_tunnel(stream="x")(flips).configure(heads=np.ones(2)),
        ["'heads'", "ndarray", "tuple"],
    ),
    "unknown setting": (
        lambda: wind_tunnel(stream="x")(flips).configure(lenth=3),
        ["'lenth'", "did you mean 'length'?"],
    ),
    "predict unknown": (lambda: wind_tunnel(stream="x", predict="z")(flips).length, ["predict='z'", "known: x, y"]),
    "predict context": (
        lambda: wind_tunnel(stream="x", context="y", predict="y")(flips).length,
        ["predict='y'", "context", "stream or latent"],
    ),
    "predict several": (
        lambda: wind_tunnel(stream="x", step="n")(flips_in_rows).length,
        ["predict='x'", "(2,) values at each step", "sites of their own"],
    ),
    "scored wrong length": (
        lambda: wind_tunnel(stream="x", scored=[True] * 2)(flips).scored,
        ["scored", "(2,)", "(3,)"],
    ),
    "scored not boolean": (
        lambda: wind_tunnel(stream="x", scored=[1, 0, 1])(flips).scored,
        ["scored", "int64", "boolean"],
    ),
    "scored nothing": (lambda: wind_tunnel(stream="x", scored=[False] * 3)(flips).scored, ["at least one"]),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusals_say_what_was_expected(case):
    """Would catch a declaration that cannot mean anything, accepted until something breaks far away."""
    declare, words = REFUSED[case]
    with pytest.raises(TunnelError) as refusal:
        declare()
    assert all(word in str(refusal.value) for word in words), str(refusal.value)


def test_scored_steps_follow_the_configuration():
    """Would catch a mask of the default length used at another one."""
    tunnel = wind_tunnel(stream="x", scored=lambda length, heads: np.arange(length) >= length - 2)(flips)
    assert tunnel.scored.tolist() == [False, True, True]
    assert tunnel.configure(length=4).scored.tolist() == [False, False, True, True]
    assert wind_tunnel(stream="x")(flips).scored.tolist() == [True] * 3


def test_the_program_stays_an_ordinary_numpyro_program():
    """Would catch a decorator that only its own library can run."""
    trace = handlers.trace(handlers.seed(load("casino").program, 0)).get_trace(length=7)
    assert trace["face"]["value"].shape == (7,)
    prior = numpyro.infer.Predictive(load("casino").program, num_samples=3)(jax.random.key(0))
    assert prior["face"].shape == (3, 4)


def test_draws_have_the_episode_axis_then_the_step_axis():
    """Would catch a plate's axis in the place of the step's, and roles mixed up."""
    draws = load("panel").sample(jax.random.key(0), 6)
    shapes = {name: value.shape for role in (draws.stream, draws.context, draws.latent) for name, value in role.items()}
    assert shapes == {"pixels": (6, 2, 2), "label": (6, 2), "hint": (6,), "kind": (6, 2), "mood": (6, 2)}
    assert (set(draws.stream), set(draws.context)) == ({"pixels", "label"}, {"hint"})
    assert len(np.unique(np.asarray(draws.stream["pixels"]).reshape(6, -1), axis=0)) > 1


def test_jitted_draws_are_the_eager_ones_bit_for_bit():
    """Would catch a sampler that depends on who calls it; and the two modes must agree when called eagerly."""
    tunnel, key = load("casino"), jax.random.key(5)
    eager = tunnel.sample(key, 8)
    jitted = jax.jit(lambda key: tunnel.sample(key, 8))(key)
    jax.tree.map(np.testing.assert_array_equal, eager, jitted)
    with jax.enable_x64(False):
        narrow = tunnel.sample(key, 8)
    jax.tree.map(np.testing.assert_array_equal, eager, narrow)
    assert {str(leaf.dtype) for leaf in jax.tree.leaves(narrow)} == {"int64"}


def test_sampling_inside_a_single_precision_jit_is_refused():
    """Would catch draws that differ from the eager ones, or fail to lower, with a key traced or captured."""
    tunnel = load("casino")
    with jax.enable_x64(False):
        key = jax.random.key(0)
        for draw in (lambda key: tunnel.sample(key, 2), lambda _: tunnel.sample(key, 2)):
            with pytest.raises(TunnelError, match=r"casino.sample was called inside a jit.*enable_x64\(True\)"):
                jax.jit(draw)(key)


def test_the_first_use_may_be_inside_somebodys_jit():
    """Would catch a program read with abstract values: supports would be lost, and every oracle refused."""

    @wind_tunnel(stream="x")
    def fresh(length=2):
        bias = numpyro.sample("bias", dist.Categorical(jnp.ones(2) / 2))
        with numpyro.plate("n", length):
            numpyro.sample("x", dist.Bernoulli(bias / 2))

    draws = jax.jit(lambda key: fresh.sample(key, 3))(jax.random.key(0))
    assert fresh.reading.sites["bias"].support.tolist() == [0, 1]
    assert all(isinstance(site.support, np.ndarray) for site in fresh.reading.sites.values())
    jax.tree.map(np.testing.assert_array_equal, draws, fresh.sample(jax.random.key(0), 3))

    @jax.jit
    def predict(episodes):
        return fresh.configure(length=3).oracle().predictive(episodes).log_probs

    heads = np.zeros((1, 3), int)
    first = predict(fresh.configure(length=3).episodes(stream={"x": heads}))
    np.testing.assert_allclose(np.exp(first)[0, :, 1], [1 / 4, 1 / 6, 1 / 10], atol=1e-15)


def test_the_fingerprint_tells_configurations_and_roles_apart():
    """Would catch a certificate accepted for another tunnel."""
    prints = {
        wind_tunnel(stream=("x", "y"))(flips).fingerprint,
        wind_tunnel(stream=("x", "y"), predict="x")(flips).fingerprint,
        wind_tunnel(stream=("x", "y"))(flips).configure(length=4).fingerprint,
        wind_tunnel(stream=("x", "y"), scored=[True, True, False])(flips).fingerprint,
        wind_tunnel(stream="x", context="y")(flips).fingerprint,
    }
    assert len(prints) == 5
    assert wind_tunnel(stream=("x", "y"))(flips).fingerprint in prints


def test_another_site_can_be_predicted():
    """Would catch a closed form that follows the name `predict` instead of the site it was given for."""
    tunnel = load_tunnel("bijection").configure(size=4, length=3)
    keys = tunnel.predicting("key")
    assert keys.predict == "key" and keys != tunnel and keys.predicting("value") == tunnel
    np.testing.assert_allclose(keys.oracle().predictive(keys.probe).to_numpy()[:, 0], 0.25, atol=1e-15)
    with pytest.raises(TunnelError, match="predict='valeu' names no sample site of the program; did you mean 'value'"):
        tunnel.predicting("valeu")


def test_one_function_stays_the_law_of_its_site():
    """Would catch the law of one site handed out as that of another, which has as many values."""

    def fair(episodes, visible):
        return jnp.full((len(episodes), 2, 2), -jnp.log(2.0))

    @wind_tunnel(stream=("sure", "fair"), closed_form=fair)
    def two():
        with numpyro.plate("steps", 2):
            numpyro.sample("sure", dist.Bernoulli(1.0))
            numpyro.sample("fair", dist.Bernoulli(0.5))

    sure = two.predicting("sure")
    assert (two.oracle().engine, sure.oracle().engine) == ("closed form", "enumeration")
    np.testing.assert_array_equal(sure.oracle().predictive(sure.probe).to_numpy()[..., 1], 1.0)


def test_presets():
    """Would catch a preset that forgets other settings, or one that sets what is no setting and is found out only when used."""
    tunnel = load_tunnel("bijection").configure(distinct=False)
    assert tunnel.preset("small").configuration == {"size": 8, "length": 7, "distinct": False}
    with pytest.raises(TunnelError, match="has no preset 'papers'; did you mean 'paper'"):
        tunnel.preset("papers")
    with pytest.raises(TunnelError, match="it names none"):
        load("casino").preset("paper")
    with pytest.raises(TunnelError, match="preset 'paper' sets 'lenght', which is no setting; did you mean 'length'"):
        wind_tunnel(stream="x", presets={"paper": {"lenght": 3}})(flips)
