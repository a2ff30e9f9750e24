"""Whatever predicts is read the same way; what cannot be read is refused (the refusals are in tests/faults)."""

import functools
import hashlib
import math

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

from ppl_tunnels.oracles.laws import Finite
from ppl_tunnels.verification.predictors import (
    PredictorError,
    describe,
    finite_support,
    first_bad_row,
    probabilities,
)

HEADS = np.linspace(0, 1, 12).reshape(3, 4)  # of the small coin: three episodes of four flips, hard zeros included
LAWS = np.stack([1 - HEADS, HEADS], axis=-1)


class Named:
    """A law of some other library."""

    def __init__(self, **attributes):
        self.__dict__.update(attributes)


READABLE = {
    "numpy": LAWS,
    "float32": LAWS.astype(np.float32),
    "jax": jnp.asarray(LAWS),
    "lists": LAWS.tolist(),
    "tuples": tuple(map(tuple, LAWS.tolist())),
    "a law over listed values": Finite(jnp.log(jnp.asarray(LAWS)), np.arange(2)),
    "categorical, probabilities": dist.Categorical(probs=jnp.asarray(LAWS)),
    "categorical, logits": dist.Categorical(logits=jnp.log(jnp.asarray(LAWS)), validate_args=False),
    "bernoulli, probabilities": dist.Bernoulli(probs=jnp.asarray(HEADS)),
    "bernoulli, logits": dist.Bernoulli(logits=jnp.log(HEADS) - jnp.log(1 - HEADS), validate_args=False),
    "binomial": dist.Binomial(1, jnp.asarray(HEADS)),
    "a foreign law": Named(probs=LAWS),
    "a foreign record": Named(probabilities=LAWS),
    "integers": np.eye(2, dtype=int)[(HEADS > 0.5).astype(int)],
}


@pytest.fixture(scope="module")
def coin(small_tunnels):
    return small_tunnels["coin"]


@pytest.fixture(scope="module")
def episodes(coin):
    return coin.episodes(stream={"flip": np.array([[0, 1, 1, 0], [1, 1, 1, 1], [0, 0, 0, 1]])})


@pytest.mark.parametrize("form", READABLE)
def test_every_form_of_a_law_reads_the_same(coin, episodes, form):
    probs = probabilities(lambda episodes: READABLE[form], episodes, coin)
    assert probs.dtype == np.float64
    assert probs == pytest.approx(
        np.round(LAWS) if form == "integers" else LAWS, abs=1e-7 if form == "float32" else 1e-12
    )
    if form != "integers":
        assert (probs == 0).tolist() == (LAWS == 0).tolist()  # no law is clamped away from zero


def test_a_predictor_sees_no_latents_and_always_the_same_kind_of_array(coin):
    seen = []
    probabilities(
        lambda episodes: seen.append(episodes) or np.full((5, 4, 2), 0.5), coin.sample(jax.random.key(0), 5), coin
    )
    assert seen[0].latent == {}
    assert isinstance(seen[0].stream["flip"], jax.Array)


def test_a_categorical_law_speaks_of_0_to_k_and_not_of_other_values(programs):
    walk = programs.walk
    episodes = walk.episodes(stream={"move": np.array([[-1, 0, 2, 2, -1, 0]])})
    third = jnp.full((1, 6, 3), 1 / 3)
    with pytest.raises(PredictorError, match="CategoricalProbs is over 3 values that are not those"):
        probabilities(lambda episodes: dist.Categorical(third), episodes, walk)
    for law in (third, Finite(jnp.log(third), np.array([-1, 0, 2]))):
        assert probabilities(lambda episodes, law=law: law, episodes, walk) == pytest.approx(1 / 3)


def test_what_a_predictor_raised_is_kept_as_the_cause(coin, episodes):
    cause = RuntimeError("out of memory")

    def predictor(episodes):
        raise cause

    with pytest.raises(PredictorError, match="raised RuntimeError on 3 episodes of 'coin': out of memory") as caught:
        probabilities(predictor, episodes, coin)
    assert caught.value.__cause__ is cause


def test_ctrl_c_is_nobodys_fault(coin, episodes):
    def predictor(episodes):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        probabilities(predictor, episodes, coin)


def test_what_can_be_certified_has_one_finite_predicted_site(programs, coin):
    assert finite_support(coin).tolist() == [0, 1]
    assert finite_support(programs.walk).tolist() == [-1, 0, 2]
    with pytest.raises(PredictorError, match=r"'height' is not finite.*discretise"):
        finite_support(programs.heights)
    with pytest.raises(PredictorError, match=r"'pair' is 2 draws at once.*predict a site that is drawn once"):
        finite_support(programs.two_at_once)


def half(episodes):
    """A predictor of the coin with a name of its own."""
    return np.full((len(episodes), 4, 2), 0.5)


def test_a_predictor_without_a_fingerprint_is_known_by_what_it_says(coin):
    said = hashlib.sha256(np.full((len(coin.probe), 4, 2), 0.5).tobytes()).hexdigest()
    for same in (half, lambda episodes: half(episodes).tolist(), functools.partial(half)):
        assert describe(same, coin)["fingerprint"] == said
    assert describe(lambda episodes: half(episodes) + np.array([1e-9, -1e-9]), coin)["fingerprint"] != said
    assert (
        describe(coin.oracle().predictive, coin)["fingerprint"]
        == describe(coin.oracle().predictive, coin)["fingerprint"]
    )


def test_names_and_facts(coin):
    facts = {"name": "the model", "fingerprint": "abc", "targets": "oracle", "training": {"steps": 3}}
    assert describe(Named(**facts), coin) == {**facts, "kind": "Named"}
    assert describe(half, coin)["name"] == "half"
    assert describe(lambda episodes: half(episodes), coin)["name"] == "<lambda>"
    assert describe(functools.partial(half), coin)["name"] == "partial"
    assert describe(coin.oracle().predictive, coin)["name"] == "predictive"
    assert describe(half, coin)["targets"] is None


LAWFUL = np.full((2, 3, 4), 0.25)
ALL = np.ones(3, dtype=bool)


@pytest.mark.parametrize(
    "row, name, worst, what",
    [
        ([np.nan, 0.5, 0.5, 0.0], "finite", math.inf, "it returned nan"),
        ([0.5, 0.5, -np.inf, 0.0], "finite", math.inf, "it returned -inf"),
        ([-0.25, 0.5, 0.5, 0.25], "normalised", 0.25, "it returned -0.25"),
        ([0.25, 0.25, 0.25, 0.5], "normalised", 0.25, "the row sums to 1.25"),
        ([0.0, 0.0, 0.0, 0.0], "normalised", 1.0, "the row sums to 0"),
    ],
)
def test_the_first_row_that_is_no_law(row, name, worst, what):
    probs = LAWFUL.copy()
    probs[1, 1], probs[1, 2] = row, row
    assert first_bad_row(probs, ALL) == (name, 1, 1, pytest.approx(worst), what)
    assert first_bad_row(LAWFUL, ALL) is None


def test_rows_that_do_not_count_may_be_anything_finite():
    scored = np.array([True, False, True])
    probs = LAWFUL.copy()
    probs[:, 1] = [7.0, -3.0, 0.0, 0.0]
    assert first_bad_row(probs, scored) is None
    assert first_bad_row(probs, ALL)[:3] == ("normalised", 0, 1)
    probs[1, 1, 0] = np.nan
    assert first_bad_row(probs, scored)[:3] == ("finite", 1, 1)


def test_rounding_of_float32_is_no_failure():
    probs = np.random.default_rng(0).dirichlet(np.ones(50), size=(100, 3))
    assert first_bad_row(probs.astype(np.float32).astype(float), ALL) is None
