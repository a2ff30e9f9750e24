"""The gallery's known answers: urn, markov_chain, mess3, parity, kalman, recurrence and its opaque twin."""

import itertools
from fractions import Fraction

import numpy as np
import pytest

from ppl_tunnels import load_tunnel
from ppl_tunnels.verification.divergences import entropy_bits

DEFAULTS = {
    "urn": ("black", 10, "enumeration"),
    "markov_chain": ("symbol", 30, "conjugacy"),
    "mess3": ("symbol", 16, "filtering"),
    "parity": ("bit", 20, "filtering"),
    "kalman": ("reading", 20, "Kalman"),
    "recurrence": ("symbol", 16, "enumeration"),
    "opaque_recurrence": ("symbol", 16, "enumeration"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", DEFAULTS)
def test_defaults(name):
    """Would catch defaults that drift, and another engine than the one that is quick here."""
    tunnel = load_tunnel(name)
    assert (tunnel.predict, tunnel.length, tunnel.oracle().engine) == DEFAULTS[name]
    assert {"paper", "small"} <= set(tunnel.presets) and tunnel.primitives


def test_eleven_urns():
    """MacKay (2003), section 2.2: three black of ten draws with replacement."""
    urn = load_tunnel("urn").configure(length=11)
    draws = urn.episodes(stream={"black": [[1, 0, 0, 1, 0, 0, 0, 1, 0, 0, 1]]})
    posterior = urn.oracle().posterior(draws, "content").to_numpy()[0, 10]
    known = [0.063073, 0.221240, 0.293220, 0.236256, 0.128779, 0.046668, 0.009892, 0.000864, 0.0000096]
    np.testing.assert_allclose(posterior[1:10], known, atol=5e-7)
    assert posterior[0] == posterior[10] == 0
    assert urn.oracle().predictive(draws).to_numpy()[0, 10, 1] == pytest.approx(0.333038, abs=5e-7)


def test_rule_of_succession_in_a_finite_population():
    """Would catch a ball that is put back: without replacement the law is (black + 1) / (drawn + 2), whatever is left."""
    urn = load_tunnel("urn").configure(length=10, replace=False)
    draws = urn.probe.stream["black"]
    law = urn.oracle().predictive(urn.probe).to_numpy()[..., 1]
    black = np.cumsum(draws, axis=1) - draws
    np.testing.assert_allclose(law, (black + 1) / (np.arange(10) + 2), rtol=1e-12)
    with pytest.raises(ValueError, match="length=11 draws need as many balls, but balls=10"):
        urn.configure(length=11).reading  # noqa: B018


@pytest.mark.parametrize("concentration", [1.0, 0.5])
def test_counts_of_what_followed(concentration):
    """The rules of Laplace and of Krichevsky and Trofimov, row by row."""
    chain = load_tunnel("markov_chain").configure(length=12, concentration=concentration)
    law = chain.oracle().predictive(chain.probe[:8]).to_numpy()
    for row, symbols in enumerate(chain.probe.stream["symbol"][:8]):
        followed = np.full((3, 3), concentration)
        np.testing.assert_allclose(law[row, 0], 1 / 3, rtol=1e-12)
        for step in range(1, 12):
            before = symbols[step - 1]
            np.testing.assert_allclose(law[row, step], followed[before] / followed[before].sum(), rtol=1e-9)
            followed[before, symbols[step]] += 1


def test_labelled_matrices_of_mess3():
    """Would catch an emission by the state that is left: T^(s)_ij as published, applied symbol by symbol."""
    mess3 = load_tunnel("mess3").configure(length=6)
    alpha, beta, x, y = 0.85, 0.075, 0.05, 0.9
    labelled = np.array(
        [[[(alpha if j == s else beta) * (y if i == j else x) for j in range(3)] for i in range(3)] for s in range(3)]
    )
    law = mess3.oracle().predictive(mess3.probe[:8]).to_numpy()
    for row, symbols in enumerate(mess3.probe.stream["symbol"][:8]):
        belief = np.full(3, 1 / 3)
        for step, symbol in enumerate(symbols):
            np.testing.assert_allclose(law[row, step], (belief @ labelled).sum(axis=1), rtol=1e-12)
            belief = belief @ labelled[symbol]
            belief = belief / belief.sum()


def parity_by_counting(bits):
    """The probability of a string, by listing phases and fair bits in exact arithmetic."""
    total = Fraction(0)
    for phase in range(3):
        length = phase + len(bits) + 3
        fair = [place for place in range(length) if place % 3 != 2]
        for drawn in itertools.product((0, 1), repeat=len(fair)):
            string = dict(zip(fair, drawn, strict=True))
            string |= {place: string[place - 2] ^ string[place - 1] for place in range(2, length, 3)}
            if [string[phase + place] for place in range(len(bits))] == list(bits):
                total += Fraction(1, 3 * 2 ** len(fair))
    return total


def test_parity():
    """Strings counted by hand, and 1, 1, 0 bits in turn once the phase is known."""
    parity = load_tunnel("parity").configure(length=5)
    strings = np.array(list(itertools.product((0, 1), repeat=5)))[::3]
    evidence = np.exp(parity.oracle().log_evidence(parity.episodes(stream={"bit": strings})))
    np.testing.assert_allclose(evidence, [float(parity_by_counting(string)) for string in strings], rtol=1e-12)
    pair = load_tunnel("parity").configure(length=2)
    pairs = pair.episodes(stream={"bit": np.array(list(itertools.product((0, 1), repeat=2)))})
    np.testing.assert_allclose(pair.oracle().log_evidence(pairs), np.log(1 / 4), rtol=1e-12)
    long = load_tunnel("parity").configure(length=60)
    bits = entropy_bits(long.oracle().predictive(long.probe).to_numpy())[:, -30:]
    assert bits.mean() == pytest.approx(2 / 3, abs=1e-3)
    np.testing.assert_allclose(np.sort(bits[:, -3:], axis=1), [[0, 1, 1]] * len(bits), atol=1e-2)


def test_the_scalar_kalman_filter():
    """The textbook recursion; the filtered level as well."""
    kalman = load_tunnel("kalman").configure(decay=0.9)
    law, level = (kalman.predicting(site).oracle().predictive(kalman.probe[:8]) for site in ("reading", "level"))
    for row, readings in enumerate(kalman.probe.stream["reading"][:8]):
        mean, variance = 0.0, 4.0
        for step, reading in enumerate(readings):
            np.testing.assert_allclose(law.loc[row, step], mean, rtol=1e-9, atol=1e-12)
            np.testing.assert_allclose(law.scale[row, step], np.sqrt(variance + 1), rtol=1e-9)
            gain = variance / (variance + 1)
            mean, variance = mean + gain * (reading - mean), (1 - gain) * variance
            np.testing.assert_allclose(level.loc[row, step], mean, rtol=1e-9, atol=1e-12)
            np.testing.assert_allclose(level.scale[row, step], np.sqrt(variance), rtol=1e-9)
            mean, variance = 0.9 * mean, 0.81 * variance + 0.25


def test_where_the_kalman_filters_weight_lies():
    """The docstring's .39 and .63: how the long run's level moves with the last reading, and with the last two."""
    kalman = load_tunnel("kalman").configure(length=60)
    readings = np.zeros((3, 60))
    readings[1, -1] = readings[2, -2:] = 1.0
    law = kalman.predicting("level").oracle().predictive(kalman.episodes(stream={"reading": readings}))
    np.testing.assert_allclose(np.asarray(law.loc)[:, -1], [0, 0.390, 0.628], atol=5e-4)


def program_law(symbols, modulus):
    """The law of the next symbol and the probability of a program, by trying every pair, in exact arithmetic."""
    fits = [
        (a, b)
        for a, b in itertools.product(range(modulus), repeat=2)
        if all((a * x + b) % modulus == y for x, y in itertools.pairwise(symbols))
    ]
    start = Fraction(1, modulus) if symbols else 1
    program = Fraction(len(fits), modulus**2) * start
    weight = program / (program + Fraction(1, modulus ** len(symbols)))
    law = [(1 - weight) / modulus] * modulus
    for a, b in fits if symbols else ():
        law[(a * symbols[-1] + b) % modulus] += weight / len(fits)
    return (law if symbols else [Fraction(1, modulus)] * modulus), weight


def test_recurrence_by_exact_arithmetic():
    """Fixed points, broken programs and noise included; odds of p at the fourth symbol."""
    recurrence = load_tunnel("recurrence")
    streams = recurrence.probe.stream["symbol"][:4].copy()
    streams[0] = 5  # a fixed point
    streams[1] = [(3 * 2**n) % 17 for n in range(16)]
    streams[2, 6] = (streams[2, 6] + 1) % 17
    episodes = recurrence.episodes(stream={"symbol": streams})
    law, program = (
        recurrence.predicting(site).oracle().predictive(episodes).to_numpy() for site in ("symbol", "program")
    )
    for row, step in itertools.product(range(4), (0, 1, 2, 3, 4, 7, 15)):
        seen = streams[row, :step].tolist()
        expected, _ = program_law(seen, 17)
        np.testing.assert_allclose(law[row, step], np.array(expected, float), rtol=1e-12, atol=1e-15)
        _, weight = program_law(streams[row, : step + 1].tolist(), 17)
        np.testing.assert_allclose(program[row, step, 1], float(weight), rtol=1e-12, atol=1e-15)
    assert program[1, 3, 1] / program[1, 3, 0] == pytest.approx(17)
    with pytest.raises(ValueError, match="modulus=15 was given; expected a prime"):
        recurrence.configure(modulus=15).reading  # noqa: B018


def test_opaque_symbols_are_the_same_programs():
    """Would catch a relabelling applied on one side only: the plain tunnel's law with its values moved."""
    plain, opaque = (load_tunnel(name).configure(modulus=5, length=6) for name in ("recurrence", "opaque_recurrence"))
    relabelling = np.array([[3, 1, 4, 0, 2]] * 8)
    integers = plain.probe.stream["symbol"][:8]
    shown = opaque.episodes(stream={"symbol": relabelling[0][integers]}, context={"relabelling": relabelling})
    law = opaque.oracle().predictive(shown).to_numpy()
    right = plain.oracle().predictive(plain.episodes(stream={"symbol": integers})).to_numpy()
    np.testing.assert_allclose(law[..., relabelling[0]], right, rtol=1e-12, atol=1e-15)
    assert load_tunnel("opaque_recurrence").encoding().vocabulary_size == 2 * 17
