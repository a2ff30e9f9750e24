"""Properties that an exact oracle obeys, each a small named object, and `check_oracle`, which runs those that apply.

Agreement with brute force on small configurations is mandatory: a wrong prior passes every self-consistency property. To
add a property: write its function and list it in `ORACLE_PROPERTIES`.
"""

import dataclasses
import math
import warnings
from collections.abc import Callable

import jax
import numpy as np

from ppl_tunnels.episodes import Episodes
from ppl_tunnels.errors import ImpossibleEvidenceWarning, TunnelError
from ppl_tunnels.keys import Purpose, stream_key
from ppl_tunnels.oracles.oracle import Oracle
from ppl_tunnels.oracles.quadrature import Estimate
from ppl_tunnels.tunnel import PROBE_EPISODES, WindTunnel
from ppl_tunnels.verification.invariants import spliced
from ppl_tunnels.verification.referee import MOST_UNCERTAIN, Referee, numbers_of, parameters_of
from ppl_tunnels.verification.small import small_configurations

# In probability (or nats): rounding of some hundred float64 operations; a wrong formula is off by far more.
ROUNDING = 1e-9

OracleMaker = Callable[[WindTunnel], Oracle]


@dataclasses.dataclass(frozen=True)
class Finding:
    """What one property's run found.

    Attributes:
        name: of the property.
        passed: whether it held in every case.
        worst: the largest violation seen, in probability or nats.
        cases: how many comparisons of one prediction each.
        detail: where it failed and with which two values, or what was compared.
    """

    name: str
    passed: bool
    worst: float
    cases: int
    detail: str


@dataclasses.dataclass(frozen=True)
class Property:
    """A law that every exact oracle obeys.

    Attributes:
        name: short and fixed.
        statement: in notation.
        reason: why it must hold.
        small: whether it is run on small configurations (where brute force can referee) or on the tunnel itself.
        run: `(tunnel, oracle, seed) -> (violations [...], what they are of)`.
    """

    name: str
    statement: str
    reason: str
    small: bool
    run: Callable[[WindTunnel, Oracle, int], tuple[np.ndarray, str]] = dataclasses.field(repr=False)


# Of the episodes drawn for each property, how many brute force referees (it runs the program for every one).
_REFEREED = 8


def _draws(tunnel: WindTunnel, seed: int) -> Episodes:
    """Always as many, so that sampler and oracle are compiled for one shape."""
    return tunnel.sample(jax.random.fold_in(stream_key(0, Purpose.CHECK), seed), PROBE_EPISODES).without_latents()


def _random_mask(tunnel: WindTunnel, seed: int) -> np.ndarray:
    generator = np.random.default_rng(seed)
    return np.tril(generator.random((tunnel.length, tunnel.length)) < 0.5, -1)


def _beyond(said: np.ndarray, right: Estimate) -> np.ndarray:
    """How far an answer is off by more than the referee may be itself."""
    uncertain = right.error > MOST_UNCERTAIN * (1 + np.abs(right.value))
    if uncertain.any():
        raise TunnelError(
            f"the referee itself may be off by {np.max(right.error):.1g} here, so there is nothing exact to compare with; name a smaller "
            "configuration (small=)"
        )
    return np.maximum(np.abs(said - right.value) - right.error, 0.0)


def _agreement(tunnel: WindTunnel, oracle: Oracle, seed: int) -> tuple[np.ndarray, str]:
    episodes = _draws(tunnel, seed)
    right = Referee(tunnel, episodes[:_REFEREED]).predictive()
    return _beyond(numbers_of(tunnel, oracle, episodes)[:_REFEREED], right), "probability from the referee's"


def _masking(tunnel: WindTunnel, oracle: Oracle, seed: int) -> tuple[np.ndarray, str]:
    episodes, mask = _draws(tunnel, seed), _random_mask(tunnel, seed)
    right = Referee(tunnel, episodes[:_REFEREED]).predictive(mask)
    said = numbers_of(tunnel, oracle, episodes, mask)[:_REFEREED]
    return _beyond(said, right), "probability from the referee's, with steps hidden,"


def _prior(tunnel: WindTunnel, oracle: Oracle, seed: int) -> tuple[np.ndarray, str]:
    episodes, nothing = _draws(tunnel, seed), np.zeros((tunnel.length, tunnel.length), dtype=bool)
    right = Referee(tunnel, episodes[:_REFEREED]).predictive(nothing)
    said = numbers_of(tunnel, oracle, episodes)[:_REFEREED]
    return _beyond(said, right)[:, :1], "probability at the first step, before any evidence,"


def _chain_rule(tunnel: WindTunnel, oracle: Oracle, seed: int) -> tuple[np.ndarray, str]:
    episodes = _draws(tunnel, seed)
    total = np.zeros(PROBE_EPISODES)
    for name in tunnel.reading.named("stream"):
        total += np.asarray(oracle.predictive(episodes, site=name).log_prob(episodes.stream[name])).sum(axis=1)
    right = Referee(tunnel, episodes[:_REFEREED]).log_evidence()
    return _beyond(total[:_REFEREED], right), "nats of evidence, summed step by step,"


def _normalised(tunnel: WindTunnel, oracle: Oracle, seed: int) -> tuple[np.ndarray, str]:
    if tunnel.reading.sites[tunnel.predict].support is None:
        return np.zeros((1, 1)), "nothing: the predicted site is not finite, and its law normalised by its form,"
    probs = oracle.predictive(_draws(tunnel, seed)).to_numpy()
    wrong = np.abs(probs.sum(axis=-1) - 1) + np.where(probs < 0, -probs, 0.0).sum(axis=-1)
    return np.where(np.isfinite(wrong), wrong, np.inf), "sum of probabilities"


def _support(tunnel: WindTunnel, oracle: Oracle, seed: int) -> tuple[np.ndarray, str]:
    episodes = _draws(tunnel, seed)
    if tunnel.predict not in tunnel.reading.named("stream"):
        return np.zeros(1), "nothing: the predicted site is latent,"
    log_prob = np.asarray(oracle.predictive(episodes).log_prob(episodes.stream[tunnel.predict]))
    return np.where(np.isneginf(log_prob), 1.0, 0.0), "probability 0 for a value that was drawn:"


def _causality(tunnel: WindTunnel, oracle: Oracle, seed: int) -> tuple[np.ndarray, str]:
    episodes, other = _draws(tunnel, 2 * seed), _draws(tunnel, 2 * seed + 1)
    base = parameters_of(oracle.predictive(episodes))
    moved = np.zeros((PROBE_EPISODES, tunnel.length))
    steps = np.arange(tunnel.length)
    for first in np.unique(np.linspace(0, tunnel.length - 1, min(tunnel.length, 6)).astype(int)):
        cuts = (first + np.arange(PROBE_EPISODES)) % tunnel.length  # so that every step is the cut of some episode
        with warnings.catch_warnings():
            # A spliced episode may be impossible after the cut, where nothing is looked at.
            warnings.simplefilter("ignore", ImpossibleEvidenceWarning)
            twin = parameters_of(oracle.predictive(spliced(tunnel, episodes, other, cuts)))
        moved = np.maximum(moved, np.where(steps <= cuts[:, None], np.abs(twin - base).max(axis=-1), 0.0))
    return moved, "probability moved by the answer or the future,"


ORACLE_PROPERTIES: tuple[Property, ...] = (
    Property(
        "agreement",
        "p(x_t | x_<t) = sum_h p(h, x_<t, x_t) / sum_h p(h, x_<t)",
        "it is the definition of the predictive; the referee evaluates it from the program's own log_probs",
        True,
        _agreement,
    ),
    Property(
        "masking",
        "the same with the likelihoods of hidden steps left out",
        "visible= drops likelihood factors and nothing else",
        True,
        _masking,
    ),
    Property(
        "prior at zero evidence",
        "p(x_1) = sum_h p(h) p(x_1 | h)",
        "before any evidence the posterior is the prior",
        True,
        _prior,
    ),
    Property(
        "chain rule",
        "sum_t log p(x_t | x_<t) = log p(x_1, …, x_T)",
        "conditional laws multiply to the joint law, each factor once and to the first power",
        True,
        _chain_rule,
    ),
    Property("normalised", "sum_v p(x_t = v | x_<t) = 1", "it is a law", False, _normalised),
    Property("support", "p(x_t | x_<t) > 0 for an x_t that was drawn", "what happens is possible", False, _support),
    Property(
        "causality",
        "p(x_t | x_<t) does not change with x_t, x_t+1, …",
        "the prediction is made before they are revealed",
        False,
        _causality,
    ),
)


def check_oracle(
    tunnel: WindTunnel, oracle: OracleMaker = WindTunnel.oracle, *, rounds: int = 2
) -> tuple[Finding, ...]:
    """Run every property on a tunnel's oracle.

    Args:
        tunnel: whose program is the truth.
        oracle: how to get the oracle under test at a configuration; the derived one by default.
        rounds: independent draws of episodes (and masks) for each property.

    Returns:
        One finding a property. Where no small configuration is within brute force's reach, the finding of each property
        that needs one says so and fails.

    Example:
        >>> import ppl_tunnels
        >>> all(finding.passed for finding in check_oracle(ppl_tunnels.load_tunnel("coin"), rounds=1))
        True
    """
    small = small_configurations(tunnel)
    makers = {at: oracle(at) for at in (tunnel, *small)}
    return tuple(_run(prop, makers, small if prop.small else (tunnel,), rounds) for prop in ORACLE_PROPERTIES)


def _run(prop: Property, oracles: dict[WindTunnel, Oracle], at: tuple[WindTunnel, ...], rounds: int) -> Finding:
    if not at:
        why = (
            "no configuration small enough for the referee was found; name one with @wind_tunnel(small=({'setting': value},)) "
            "so that the oracle can be compared with something"
        )
        return Finding(prop.name, False, float("inf"), 0, why)
    worst, cases, detail = 0.0, 0, "no difference"
    limit = 0.0 if prop.name == "causality" else ROUNDING
    for tunnel in at:
        for seed in range(rounds):
            try:
                violations, what = prop.run(tunnel, oracles[tunnel], seed)
            except TunnelError as error:
                return Finding(prop.name, False, float("inf"), cases, str(error))
            violations = np.where(np.isnan(violations), np.inf, violations)
            cases += math.prod(violations.shape[:2])
            if violations.size and violations.max() > worst:
                worst = float(violations.max())
                place = np.unravel_index(violations.argmax(), violations.shape)
                where = ", ".join(
                    f"{axis} {i + 1 if axis == 'step' else i}"
                    for axis, i in zip(("episode", "step"), place, strict=False)
                )
                settings = ", ".join(f"{name}={value}" for name, value in tunnel.settings)
                detail = f"{what} off by {worst:.3g} at {where} of {tunnel.name}({settings}), seed {seed}"
    return Finding(prop.name, worst <= limit, worst, cases, detail)
