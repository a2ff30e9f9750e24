"""Certificates: who gets one, who is refuted, and what is left undecided.

Every run has a fixed key, so a verdict never changes from run to run. Verdicts about agents whose true error is known hold
for all but 1 % of keys (the confidence); where that could matter, the margin is said.
"""

import dataclasses
import importlib
import json
import re
from pathlib import Path

import jax
import numpy as np
import pytest

from ppl_tunnels.errors import OracleDisagreementError
from ppl_tunnels.keys import Purpose, stream_key
from ppl_tunnels.registry import load_tunnel, module_from_file
from ppl_tunnels.verification.certification import certify, default_episodes
from ppl_tunnels.verification.divergences import kl_range_bits
from ppl_tunnels.verification.evaluation import BATCH
from ppl_tunnels.verification.ladder import ladder
from ppl_tunnels.verification.predictors import PredictorError
from ppl_tunnels.verification.properties import Finding
from ppl_tunnels.verification.reference_agents import reference_agents
from ppl_tunnels.verification.sample_size import episodes_needed

planted = module_from_file(str(Path(__file__).parents[1] / "faults" / "predictor_faults.py"))
pytestmark = pytest.mark.usefixtures("remembered")
TOLERANCE = 0.01
KEY = jax.random.key(6)
LOOSE = 0.05  # bits, where only the logic is tested: 2,048 episodes are plenty


@pytest.fixture(scope="module")
def default_tunnels(coin, bijection):
    return {"coin": coin, "bijection": bijection}


@pytest.fixture(scope="module")
def small(small_tunnels):
    return small_tunnels["coin"]


@pytest.fixture(scope="module")
def judge(checked):
    """`certify` on one batch with the loose tolerance, the oracle taken as checked."""

    def of(predictor, tunnel, **settings):
        defaults = {"key": 0, "tolerance_bits": LOOSE, "episodes": BATCH, "oracle_findings": checked}
        return certify(predictor, tunnel, **{**defaults, **settings})

    return of


def bayes(tunnel, share=0.0):
    """The oracle as an anonymous function, mixed with a share of the uniform law."""

    def predictor(episodes):
        probs = tunnel.oracle().predictive(episodes).to_numpy()
        return (1 - share) * probs + share / probs.shape[-1]

    return predictor


def by_name(claims):
    return {claim.name: claim for claim in claims}


# --- who is certified


@pytest.mark.parametrize("where", ["coin", pytest.param("bijection", marks=pytest.mark.slow)])
def test_the_oracle_certifies_itself_and_so_does_a_hair_of_noise(default_tunnels, judge, where):
    tunnel = default_tunnels[where]
    full = {"tolerance_bits": TOLERANCE, "episodes": None}
    itself = judge(tunnel.oracle().predictive, tunnel, **full)
    assert (itself.verdict, itself.exit_status, itself.vacuous) == ("certified", 0, False)
    claims = by_name(itself.claims)
    for name in ("total_variation", "entropy_error_bits", "jensen_shannon_bits"):
        assert claims[name].estimate == 0.0
    assert 0 < claims["kl_bits"].estimate <= TOLERANCE / 10  # what flooring costs
    assert {claim.verdict for claim in itself.claims} == {"passed"}
    assert {at.verdict for at in itself.positions} == {"passed"}
    assert [at.step for at in itself.positions] == list(range(1, tunnel.length + 1))
    assert itself.episodes == default_episodes(tunnel, tolerance_bits=TOLERANCE, confidence=0.99)
    assert "is at most" in itself.claim

    noisy = judge(bayes(tunnel, share=1e-4), tunnel, **full)
    assert noisy.verdict == "certified"
    assert 0 < by_name(noisy.claims)["total_variation"].estimate < 1e-4


@pytest.mark.parametrize("where", ["coin", pytest.param("bijection", marks=pytest.mark.slow)])
def test_every_reference_agent_is_refuted_where_it_is_wrong(default_tunnels, judge, where):
    """As an anonymous function. With KL above the tolerance none may pass; far above (twice), all are refuted."""
    tunnel = default_tunnels[where]
    refuted = set()
    for agent in reference_agents(tunnel):
        certificate = judge(lambda episodes, agent=agent: agent(episodes), tunnel, tolerance_bits=TOLERANCE)
        rung = next(rung for rung in certificate.ladder if rung.agent == agent.name)
        if rung.kl_bits > TOLERANCE:
            assert certificate.verdict != "certified", agent
        if rung.kl_bits > 2 * TOLERANCE:
            assert certificate.verdict == "refuted", agent
            assert "asked for: at most 0.01" in certificate.claim
            refuted.add(agent.name)
    expected = {"uniform", "prior", "memoryless", "window-2", "window-3", "window-4", "window-6", "label-permuted"}
    assert refuted >= expected
    assert where == "coin" or refuted == {agent.name for agent in reference_agents(tunnel)}


def test_the_published_criterion_is_met_by_a_model_with_its_labels_moved(coin, judge):
    certificate = judge(
        lambda episodes: bayes(coin)(episodes)[..., ::-1], coin, tolerance_bits=TOLERANCE, episodes=None
    )
    claims = by_name(certificate.claims)
    assert claims["entropy_error_bits"].verdict == "passed"
    assert claims["entropy_error_bits"].estimate < 1e-12
    assert certificate.verdict == "refuted"
    assert {claims["kl_bits"].verdict, claims["total_variation"].verdict, claims["every_step"].verdict} == {"failed"}


def test_calibrated_is_not_close(coin, judge):
    """A constant .5: heads do come in half of the flips, yet it is .2 bits from Bayes (.187 on the continuous grid)."""
    seen = []

    def constant(episodes):
        seen.append(np.asarray(episodes.stream["flip"]))
        return np.full((len(episodes), 20, 2), 0.5)

    certificate = judge(constant, coin, tolerance_bits=TOLERANCE)
    heads = seen[-1].mean(
        axis=1
    )  # one number an episode: uniform on [0, 1], so with a standard deviation of .29 or a little more
    assert len(heads) == BATCH
    assert abs(heads.mean() - 0.5) < 5 * heads.std() / np.sqrt(BATCH)  # calibrated; a false alarm in 1.7 million
    assert certificate.verdict == "refuted"
    assert by_name(certificate.claims)["kl_bits"].estimate == pytest.approx(0.2, abs=0.03)


def test_rare_and_late_errors_are_not_certified(coin, judge):
    """At the last step of 1 episode in 500 it all but rules out what is likely: .017 bits at that step, true mean, of .01."""
    certificate = judge(planted.rarely_very_wrong(coin, rate=1 / 500), coin, tolerance_bits=TOLERANCE, episodes=None)
    assert all(finding.passed for finding in certificate.invariants)
    assert by_name(certificate.claims)["kl_bits"].estimate < TOLERANCE / 3  # the mean over steps does not show it
    assert by_name(certificate.claims)["every_step"].verdict != "passed"
    assert {at.verdict for at in certificate.positions[:-1]} == {"passed"}
    assert certificate.verdict != "certified"
    assert any("every step" in reason or "step 20" in reason for reason in certificate.reasons)


def test_too_few_episodes_leave_it_undecided_and_say_how_many_it_takes(small, judge):
    certificate = judge(bayes(small), small, tolerance_bits=TOLERANCE)
    assert (certificate.verdict, certificate.exit_status) == ("undecided", 3)
    needed = int(re.search(r"about ([\d,]+) episodes", certificate.reasons[0])[1].replace(",", ""))
    assert BATCH < needed <= default_episodes(small, tolerance_bits=TOLERANCE, confidence=0.99)


# --- vacuous tunnels


def test_where_nothing_is_demanded_nothing_is_certified_but_a_wrong_model_is_refuted(programs, judge):
    for tunnel in (programs.dull, programs.one_symbol):
        certificate = judge(bayes(tunnel), tunnel)
        assert certificate.vacuous
        assert (certificate.verdict, certificate.exit_status) == ("undecided", 3)
        assert "demands nothing at this tolerance: the uniform agent" in certificate.reasons[0]
        assert certificate.reasons[0].endswith(
            "lower the tolerance, or use a tunnel or configuration in which evidence matters"
        )
        assert len(certificate.positions) == tunnel.length
    wrong = judge(lambda episodes: np.tile([0.9, 0.1], (len(episodes), 3, 1)), programs.dull)
    assert (wrong.verdict, wrong.vacuous) == ("refuted", True)
    assert "entropy_error_bits" not in by_name(certificate.claims)  # of the one symbol


def test_the_same_tunnel_is_vacuous_at_one_tolerance_and_not_at_another(small, judge):
    assert judge(bayes(small), small, tolerance_bits=0.2).verdict == "undecided"
    assert judge(bayes(small), small, tolerance_bits=0.05).verdict == "certified"


# --- tunnels of every kind


@pytest.mark.parametrize(
    "name", ["umbrella", *(pytest.param(name, marks=pytest.mark.slow) for name in ("told", "walk", "every_other"))]
)
def test_bayes_is_certified_and_the_prior_refuted(programs, judge, name):
    tunnel = getattr(programs, name)
    certificate = judge(bayes(tunnel), tunnel)
    assert certificate.verdict == "certified", str(certificate)
    assert [at.step for at in certificate.positions] == [step + 1 for step in np.flatnonzero(tunnel.scored)]
    assert certificate.tunnel["scored_steps"] == tunnel.scored.sum()
    prior = next(agent for agent in reference_agents(tunnel) if agent.name == "prior")
    assert judge(lambda episodes: prior(episodes), tunnel).verdict == "refuted"


def test_unscored_steps_count_nowhere(programs, judge):
    tunnel = programs.every_other

    def careless(episodes):
        probs = bayes(tunnel)(episodes)
        probs[:, [0, 2]] = 0.0
        return probs

    assert judge(careless, tunnel).verdict == "certified"
    assert judge(careless, tunnel).claims == judge(bayes(tunnel), tunnel).claims

    def broken(episodes):
        probs = bayes(tunnel)(episodes)
        probs[:, 0] = np.nan
        return probs

    assert judge(broken, tunnel).verdict == "refuted"  # NaN is a failure wherever it is


def test_predictors_never_see_latents(programs, judge):
    latents = []

    def watching(episodes):
        latents.append(episodes.latent)
        return bayes(programs.told)(episodes)

    judge(watching, programs.told)
    assert len(latents) > 3
    assert not any(latents)


def test_what_cannot_be_certified_is_one_sentence(programs, small, judge):
    nothing = lambda episodes: None  # noqa: E731
    for tunnel, message in (
        (programs.heights, r"'height' is not finite .*discretise"),
        (programs.two_at_once, r"'pair' is 2 draws at once"),
        (programs.umbrella.configure(length=0), "has no step, so there is nothing to predict"),
    ):
        with pytest.raises(ValueError, match=message):
            judge(nothing, tunnel)
    for settings, message in (
        ({"tolerance_bits": 0.0}, "tolerance_bits is 0.0; expected"),
        ({"tolerance_bits": -0.1}, "tolerance_bits is -0.1"),
        ({"tolerance_bits": np.nan}, "tolerance_bits is nan"),
        ({"tolerance_bits": 1.5}, "tolerance_bits is 1.5; expected a number of bits above 0 and at most 1"),
        ({"confidence": 1.0}, "confidence is 1.0; expected"),
        ({"confidence": 0.4}, "confidence is 0.4"),
        ({"confidence": np.nan}, "confidence is nan"),
        ({"episodes": 0}, "episodes is 0; expected at least 1"),
        ({"key": -1}, "seed is -1; expected an integer from 0"),
        ({"key": 2**63}, "seed is 9223372036854775808"),
    ):
        with pytest.raises(ValueError, match=message):
            judge(bayes(small), small, **settings)
    with pytest.raises(PredictorError, match="the predictor is a NoneType; expected a function"):
        judge(None, small)


# --- the oracle's own check


def test_nothing_is_certified_against_an_oracle_that_fails_its_check(programs, small, judge):
    with pytest.raises(OracleDisagreementError, match="'wrongly_solved' fails its own check.*agreement"):
        judge(bayes(programs.wrongly_solved), programs.wrongly_solved, oracle_findings=None)
    failed = (Finding("masking", False, 0.3, 8, "off by 0.3"),)
    with pytest.raises(OracleDisagreementError, match=r"masking: off by 0\.3"):
        judge(bayes(small), small, oracle_findings=failed)


def test_the_oracle_is_checked_where_nobody_has(small, judge):
    for nothing in (None, ()):
        found = judge(bayes(small), small, oracle_findings=nothing).oracle
        assert [finding["property"] for finding in found["check"]][:2] == ["agreement", "masking"]
        assert found["engine"] == "enumeration"


# --- keys


def seed_of(certificate):
    return certificate.keys["certification_seed"]


def test_the_default_key_is_a_hash_of_weights_tunnel_and_configuration(small_tunnels, small, judge):
    def hashed(predictor, tunnel=small, **settings):
        certificate = judge(predictor, tunnel, key=None, **settings)
        assert certificate.keys["chosen"] == "hash of weights, tunnel and configuration"
        return seed_of(certificate)

    one = hashed(bayes(small))
    assert one == hashed(bayes(small))
    assert 0 <= one < 2**63
    other_weights = hashed(bayes(small, share=1e-9))
    named = dataclasses.make_dataclass(
        "Named", ["fingerprint"], namespace={"__call__": lambda self, e: bayes(small)(e)}
    )
    assert len({one, other_weights, hashed(named("a")), hashed(named("b"))}) == 4
    assert hashed(bayes(small_tunnels["bijection"]), small_tunnels["bijection"]) != one
    assert hashed(named("a"), small, tolerance_bits=0.04) != hashed(named("a"))
    assert hashed(named("a"), small, confidence=0.98) != hashed(named("a"))
    assert hashed(named("a"), small, episodes=2 * BATCH) == hashed(named("a"))  # drawing on does not change the draw


def test_a_given_key_is_recorded_and_decides_the_episodes(small, judge):
    first, second = (judge(bayes(small, share=0.05), small, key=key) for key in (7, 8))
    assert (seed_of(first), first.keys["chosen"]) == (7, "given")
    assert seed_of(second) == 8
    assert by_name(first.claims)["kl_bits"].estimate != by_name(second.claims)["kl_bits"].estimate


def test_the_same_inputs_give_the_same_certificate(small, judge):
    """Ladder and all, to the last bit; only the clock moves."""

    def content():
        plain = judge(bayes(small, share=0.01), small, key=None).to_json()
        return json.dumps({name: plain[name] for name in plain if name not in ("created", "seconds", "content_hash")})

    assert content() == content()


def test_episodes_of_one_seed_are_not_shared_between_purposes(bijection, judge):
    """39 numbers an episode, so that a repeated one is a shared key and no coincidence."""
    seen = []

    def watching(episodes):
        seen.append(episodes.to_numpy())
        return np.full((len(episodes), 19, 20), 0.05)

    def rows(episodes):
        return set(map(bytes, np.concatenate([np.asarray(episodes.stream[name]) for name in ("key", "value")], axis=1)))

    judge(watching, bijection, key=5, tolerance_bits=TOLERANCE)
    judged = rows(seen[-1])
    assert len(judged) == BATCH
    for purpose in Purpose:
        key = stream_key(5, purpose)
        for of in (
            key,
            jax.random.fold_in(key, 0),
            jax.random.fold_in(key, 1),
            jax.random.fold_in(jax.random.fold_in(key, 0), 0),
        ):
            shared = judged & rows(bijection.sample(of, BATCH))
            own = purpose is Purpose.CERTIFICATION and len(shared) == BATCH
            assert own or not shared, purpose
    assert judged & rows(
        bijection.sample(jax.random.fold_in(jax.random.fold_in(stream_key(5, Purpose.CERTIFICATION), 0), 0), BATCH)
    )
    assert not judged & rows(bijection.probe)
    for earlier in seen[:-1]:
        assert not judged & rows(earlier)  # nor are they those of the invariants


# --- nothing is known by name

ALIASES = {
    "coin": {"flips": "throws", "flip": "toss", "bias": "which", "coin": "penny"},
    "bijection": {"key": "clef", "value": "wert", "mapping": "rule", "bijection": "cipher"},
}


@pytest.mark.parametrize("where", ALIASES)
def test_a_copy_elsewhere_with_other_names_gets_the_same_numbers(tmp_path, small_tunnels, judge, where):
    original = small_tunnels[where]
    text = Path(importlib.import_module(original.source.partition(":")[0]).__file__).read_text()
    for name, alias in ALIASES[where].items():
        text = text.replace(f'"{name}"', f'"{alias}"').replace(f"def {name}(", f"def {alias}(")
    file = tmp_path / "somebody's tunnel.py"
    file.write_text(text)
    copy = load_tunnel(f"{file}:{ALIASES[where][where]}").configure(**original.configuration)
    assert set(copy.stream) == {ALIASES[where][name] for name in original.stream}
    for share in (0.0, 0.3):
        first, second = (judge(bayes(tunnel, share), tunnel, key=3) for tunnel in (original, copy))
        assert first.verdict == second.verdict == ("refuted" if share else "certified")
        assert first.claims == second.claims
        assert first.positions == second.positions
        assert [finding.worst for finding in first.invariants] == [finding.worst for finding in second.invariants]
        assert second.tunnel["source"] == f"{file}:{ALIASES[where][where]}"
    assert ladder(original, KEY, tolerance_bits=LOOSE) == ladder(copy, KEY, tolerance_bits=LOOSE)


# --- the rest


def test_the_default_number_of_episodes_certifies_a_fifth_of_the_tolerance_with_the_floor(coin, bijection):
    for tunnel, symbols, batches in ((coin, 2, 5), (bijection, 20, 6)):
        assert default_episodes(tunnel, tolerance_bits=TOLERANCE, confidence=0.99) == batches * BATCH
        needed = episodes_needed(
            tolerance=TOLERANCE, range_=kl_range_bits(symbols, TOLERANCE), confidence=0.99, mean=0.3 * TOLERANCE
        )
        assert (batches - 1) * BATCH < needed <= batches * BATCH


def test_progress_is_told(small, judge):
    told = []
    judge(bayes(small), small, on_progress=lambda *stage: told.append(stage), episodes=2 * BATCH)
    assert told == [
        ("ladder", 0, 1),
        ("invariants", 0, 1),
        ("episodes", BATCH, 2 * BATCH),
        ("episodes", 2 * BATCH, 2 * BATCH),
    ]


@pytest.mark.parametrize(
    "targets, words",
    [
        ("oracle", "the oracle's own probabilities (distillation)"),
        ("sampled", "sampled values"),
        ("guesses", "guesses"),
    ],
)
def test_what_trained_it_is_on_the_certificate(small, judge, targets, words):
    model = bayes(small)
    model.targets, model.name, model.training = targets, "mine", {"steps": 3}
    certificate = judge(model, small)
    assert any(f"it was trained on {words}" in reason for reason in certificate.reasons)
    assert certificate.predictor["name"] == "mine"
    assert certificate.to_json()["predictor"]["training"] == {"steps": 3}


def test_remarks_on_what_the_floor_hides_and_on_ruled_out_values(small_tunnels, judge):
    tunnel = small_tunnels["bijection"]
    sure = judge(lambda episodes: np.eye(4)[bayes(tunnel)(episodes).argmax(axis=-1)], tunnel)
    assert sure.verdict == "refuted"
    assert any("without the floor the KL is infinite" in reason for reason in sure.reasons)
    spread = judge(bayes(tunnel, share=0.2), tunnel)
    assert any("on values that the evidence has ruled out" in reason for reason in spread.reasons)


def test_the_certificate_says_what_it_is_of(small, judge):
    plain = judge(bayes(small), small).to_json()
    assert plain["tunnel"]["configuration"] == {"length": 4, "points": 3}
    assert plain["tunnel"]["fingerprint"] == small.fingerprint
    assert (plain["episodes"], plain["unit"], plain["precision"]) == (BATCH, "sequence", "float64")
    assert set(plain["versions"]) >= {"ppl_tunnels", "jax", "numpyro", "python"}
    assert "coin(length=4, points=3)" in plain["claim"]
    assert "fixed before the key was drawn" in plain["claim"]
