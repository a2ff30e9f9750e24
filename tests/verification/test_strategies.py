"""Random programs are valid, shrink to simple ones, and mean the same by whatever names."""

import dataclasses

import hypothesis
import jax
import numpy as np
import pytest
from numpyro import handlers

from ppl_tunnels.errors import TunnelError
from ppl_tunnels.program import double_precision
from ppl_tunnels.verification.random_programs import COPY, INSIDE, PHASE, Draw, Ref, Spec, build
from ppl_tunnels.verification.strategies import FAMILIES, FINITE_FAMILIES, random_programs, seeded_spec


def traced(spec: Spec) -> list:
    """Of every sample site of one run, in program order, the value and its log-probability."""

    def run():
        trace = handlers.trace(handlers.seed(build(spec).program, jax.random.key(3))).get_trace()
        sites = [site for site in trace.values() if site["type"] == "sample"]
        return [(site["value"], site["fn"].log_prob(site["value"])) for site in sites]

    with double_precision():
        return jax.jit(run)()


def abstractly_run(spec: Spec) -> dict:
    """Shapes of every sample site; nothing is computed."""

    def run():
        trace = handlers.trace(handlers.seed(build(spec).program, jax.random.key(3))).get_trace()
        return {name: site["value"] for name, site in trace.items() if site["type"] == "sample"}

    with double_precision():
        return jax.eval_shape(run)


@hypothesis.given(random_programs())
@hypothesis.settings(max_examples=25)
def test_a_drawn_spec_is_a_program_with_the_sites_that_it_names(spec):
    sites = abstractly_run(spec)
    sampled = {draw.name for draw in spec.draws if draw.law != "leak"}
    assert set(sites) == sampled | {draw.numbers for draw in spec.draws if draw.numbers}
    per_step = [draw.name for draw in spec.draws if not draw.once and draw.law != "leak"]
    if spec.layout != "none":
        assert all(spec.steps in sites[name].shape for name in per_step)
    assert spec.draw(spec.predict).role == "stream"


@hypothesis.given(random_programs())
@hypothesis.settings(max_examples=200)
def test_draws_refer_to_what_was_drawn_before(spec):
    seen = {PHASE, COPY}
    names = {draw.name for draw in spec.draws}
    for draw in spec.draws:
        for ref in draw.refs:
            assert ref.site in (seen if ref.lag == 0 else names | seen)
        assert {draw.of, draw.exposure, draw.scale_of, draw.start} - {""} <= seen
        seen.add(draw.name)


@hypothesis.given(random_programs())
@hypothesis.settings(max_examples=200)
def test_a_spec_survives_json_and_its_shape_has_neither_names_nor_constants(spec):
    assert Spec.from_json(spec.to_json()) == spec
    assert spec.shape.shape == spec.shape
    assert dataclasses.replace(spec, seed=spec.seed + 1, step_name="another").shape == spec.shape


def test_every_family_is_generated_and_says_whether_it_is_in_reach():
    specs = [seeded_spec(seed, (family,)) for family in FAMILIES for seed in range(20)]
    assert {spec.family for spec in specs} == set(FAMILIES)
    reach = {family: {spec.inside for spec in specs if spec.family == family} for family in FAMILIES}
    assert all(len(each) == 1 for each in reach.values())
    assert all(reach[family] == {True} for family in FINITE_FAMILIES)
    assert all(spec.reach == INSIDE or spec.reach.startswith("outside: ") for spec in specs)


def test_finite_families_have_finite_latents_only():
    specs = [seeded_spec(seed, FINITE_FAMILIES) for seed in range(50)]
    assert all(draw.values for spec in specs for draw in spec.draws if draw.role == "latent")


def test_an_unknown_family_is_refused():
    with pytest.raises(ValueError, match="'chains' is no family of programs"):
        seeded_spec(0, ("chains",))


@pytest.mark.parametrize(
    ("families", "wanted", "most"),
    [
        (("static",), lambda spec: spec.steps > 2, 2),
        (("chain",), lambda spec: spec.steps > 3, 2),
        (("conjugate",), lambda spec: any(draw.of for draw in spec.draws), 2),
        (tuple(FAMILIES), lambda spec: any(draw.copies for draw in spec.draws), 3),
    ],
    ids=["static", "chain", "conjugate", "copies"],
)
def test_programs_shrink_to_small_ones(families, wanted, most):
    settings = hypothesis.settings(max_examples=2_000, database=None)
    smallest = hypothesis.find(random_programs(families), wanted, settings=settings)
    assert len(smallest.draws) <= most
    assert not smallest.period and smallest.seed == 0
    assert not any(draw.zeros for draw in smallest.draws)


@pytest.mark.parametrize("family", ["static", "chain", "conjugate", "gaussian chain"])
def test_renaming_sites_changes_nothing(family):
    spec = seeded_spec(5, (family,))
    renamed = dataclasses.replace(spec.shape, seed=spec.seed)
    one, other = traced(spec), traced(renamed)
    assert len(one) == len(other)
    for mine, theirs in zip(one, other, strict=True):
        jax.tree.map(np.testing.assert_array_equal, mine, theirs)


def test_two_sites_of_one_name_are_refused():
    twice = Spec(
        "twice", "plate", 2, (Draw("x", "bernoulli"), Draw("x", "bernoulli", "stream", given=(Ref("x"),))), "x"
    )
    with pytest.raises(TunnelError, match="names two sites alike"):
        build(twice)
