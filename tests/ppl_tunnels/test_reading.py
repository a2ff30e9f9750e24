"""Roles, and which axis is the step."""

import itertools
from pathlib import Path

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers
from numpyro.contrib.control_flow import scan

from ppl_tunnels import load_tunnel
from ppl_tunnels.errors import TunnelError
from ppl_tunnels.reading import read_program

PROGRAMS = Path(__file__).with_name("programs.py")
COIN = dist.Bernoulli(0.5)


def read(program, stream="x", context=(), step=None):
    return read_program(program, stream=(stream,) if isinstance(stream, str) else stream, context=context, step=step)


def draw_in_scan(*names):
    def body(carry, _):
        for name in names:
            numpyro.sample(name, COIN)
        return carry, None

    scan(body, 0.0, None, length=3)


def draw_in_plate(*names, plate="n", law=COIN):
    with numpyro.plate(plate, 3):
        for name in names:
            numpyro.sample(name, law)


@pytest.mark.parametrize(
    ("name", "axis", "steps", "roles"),
    [
        ("casino", "the scan", 4, {"start": ("latent", False), "face": ("stream", True), "state": ("latent", True)}),
        (
            "panel",
            "plate 'time'",
            2,
            {
                "kind": ("latent", False),
                "hint": ("context", False),
                "mood": ("latent", True),
                "pixels": ("stream", True),
                "label": ("stream", True),
            },
        ),
        ("line", "plate 'point'", 3, {"slope": ("latent", False), "x": ("context", True), "y": ("stream", True)}),
        ("sprinkler", "none", 1, {"cloudy": ("latent", False), "rain": ("stream", True)}),
    ],
)
def test_roles_and_step_axis(name, axis, steps, roles):
    """Would catch a site given the wrong role, or the wrong axis read as the step."""
    reading = load_tunnel(f"{PROGRAMS}:{name}").reading
    assert (reading.axis, reading.steps) == (axis, steps)
    for site, (role, per_step) in roles.items():
        assert (reading.sites[site].role, reading.sites[site].per_step) == (role, per_step), site
        assert site in reading.named(role) and site in reading.named(role, per_step=per_step)
        assert site not in reading.named(role, per_step=not per_step)


def test_sites_keep_program_order():
    """Would catch a reordering, which changes what comes before what within a step."""
    assert list(load_tunnel(f"{PROGRAMS}:casino").reading.sites) == ["start", "face", "state"]
    assert load_tunnel(f"{PROGRAMS}:panel").reading.named("stream") == ("pixels", "label")


def test_plates_inside_a_scan_are_several_values_a_step():
    """Would catch the inner plate read as the step axis."""

    def program():
        scan(lambda carry, _: (carry, draw_in_plate("x")), 0.0, None, length=5)

    reading = read(program)
    assert reading.steps == 5 and reading.sites["x"].layout == (5, 3)


def test_a_plate_of_another_size_may_hold_latents():
    """Would catch every plate being taken for the step."""

    def program():
        draw_in_plate("z", plate="other")
        with numpyro.plate("n", 2):
            numpyro.sample("x", COIN)

    reading = read(program)
    assert reading.steps == 2 and not reading.sites["z"].per_step and reading.sites["z"].layout == (3,)


def test_renamed_sites_keep_their_structure():
    """Would catch a rule that goes by the spelling of a name."""
    reading = read(handlers.scope(lambda: draw_in_plate("z", "x"), prefix="inner"), stream="inner/x")
    assert reading.steps == 3 and reading.sites["inner/z"].role == "latent"
    scoped_body = handlers.scope(lambda carry, _: (carry, numpyro.sample("x", COIN)), prefix="inner")
    reading = read(lambda: scan(scoped_body, 0.0, None, length=3), stream="inner/x")
    assert reading.axis == "the scan" and reading.sites["inner/x"].per_step


def test_supports_of_drawn_sizes_are_not_listed():
    """Would catch hypotheses lost because the runs that read the program drew the same size."""

    def program():
        size = numpyro.sample("size", dist.Categorical(jnp.array([1.0 - 1e-9, 1e-9])))
        numpyro.sample("k", dist.Binomial(1 + size, 0.5))
        draw_in_plate("x")

    sites = read(program).sites
    assert sites["k"].support is None and sites["k"].support_size is None
    assert sites["x"].support.tolist() == [0, 1] and sites["x"].support_size == 2


def two_plates():
    with numpyro.plate("a", 2, dim=-2), numpyro.plate("b", 3, dim=-1):
        numpyro.sample("x", COIN)


def rounds():
    for step in range(3):
        numpyro.sample(f"x{step}", COIN)


def two_scans():
    draw_in_scan("x")
    draw_in_scan("y")


def two_disjoint_plates():
    draw_in_plate("x")
    draw_in_plate("y", plate="m")


counter = itertools.count()


def different_sites():
    numpyro.sample(f"z{next(counter)}", COIN)
    draw_in_plate("x")


def branching():
    if numpyro.sample("z", COIN) > 0.5:
        pass
    draw_in_plate("x")


def deterministic():
    numpyro.deterministic("x", jnp.zeros(3))


REFUSED = {
    "two plates": (two_plates, {}, ["'b', 'a'", "step='b'"]),
    "a batch outside any plate": (
        lambda: numpyro.sample("x", dist.Bernoulli(jnp.full(4, 0.5))),
        {},
        ["'x'", "outside any plate", "numpyro.plate"],
    ),
    "a batch inside a scan": (
        lambda: scan(lambda c, _: (c, numpyro.sample("x", dist.Bernoulli(jnp.full(4, 0.5)))), 0.0, None, length=2),
        {},
        ["'x'", "outside any plate", "to_event(1)"],
    ),
    "a to_event sequence": (
        lambda: numpyro.sample("x", COIN.expand([4]).to_event(1)),
        {},
        ["'x'", "to_event", "numpyro.plate"],
    ),
    "a Python loop": (rounds, {"stream": ("x0", "x1", "x2")}, ["x0, x1, x2", "Python loop", "scan"]),
    "a Python loop by its stem": (rounds, {"stream": "x"}, ["x0, x1, x2", "Python loop", "scan"]),
    "two scans": (two_scans, {"stream": ("x", "y")}, ["x, y", "one scan", "same scan body"]),
    "no common plate": (two_disjoint_plates, {"stream": ("x", "y")}, ["x, y", "share no plate", "one plate or scan"]),
    "step= with a scan": (lambda: draw_in_scan("x"), {"step": "n"}, ["step='n'", "scan"]),
    "step= misspelt": (
        lambda: draw_in_plate("x", plate="rolls"),
        {"step": "roll"},
        ["step='roll'", "did you mean 'rolls'?"],
    ),
    "an unknown stream": (lambda: draw_in_plate("face"), {"stream": "fcae"}, ["'fcae'", "did you mean 'face'?"]),
    "an unknown context": (lambda: draw_in_plate("x"), {"context": ("y",)}, ["context='y'", "known: x"]),
    "both roles": (lambda: draw_in_plate("x"), {"context": ("x",)}, ["'x'", "both stream and context", "one role"]),
    "a deterministic stream": (deterministic, {}, ["'x'", "deterministic", "one_hot"]),
    "a Delta stream": (lambda: draw_in_plate("x", law=dist.Delta(1.0)), {}, ["'x'", "Delta", "one_hot"]),
    "sites that differ from run to run": (different_sites, {}, ["differ from run to run", "jnp.where"]),
    "an empty scan": (
        lambda: scan(lambda c, _: (c, numpyro.sample("x", COIN)), 0.0, None, length=0),
        {},
        ["the scan has no step", "at least one"],
    ),
    "an empty plate": (lambda: numpyro.plate("n", 0).__enter__(), {}, ["cannot be run", "plate", "configuration"]),
    "a scope around a scan": (
        handlers.scope(lambda: draw_in_scan("x"), prefix="inner"),
        {"stream": "inner/x"},
        ["'x'", "handlers.scope", "inside the scan's body"],
    ),
    "a Python decision": (branching, {}, ["Python decision", "jnp.where"]),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusals_name_the_site_and_the_remedy(case):
    """Would catch an ambiguous program read one way silently, or refused without help."""
    program, roles, words = REFUSED[case]
    with pytest.raises(TunnelError) as refusal:
        read(program, **roles)
    assert all(word in str(refusal.value) for word in words), str(refusal.value)
