"""Random programs with continuous latents: conjugate, Gaussian, and out of every engine's reach.

Families of `program_grammar`, which see.
"""

import dataclasses
from typing import Any

from ppl_tunnels.verification.program_grammar import Grammar
from ppl_tunnels.verification.random_programs import COPY, PHASE, Ref, Spec, Term

# What a prior is conjugate to, by the law of the stream site.
_PAIRS = (
    ("beta", ("bernoulli", "binomial", "geometric")),
    ("dirichlet", ("categorical",)),
    ("gamma", ("poisson", "exponential")),
    ("normal", ("normal",)),
    ("gamma", ("normal",)),
    ("inverse_gamma", ("normal",)),
)


def conjugate(g: Grammar) -> Spec:
    """Static latents conjugate to the stream; a finite latent may choose their priors, which of them counts, or whether."""
    layout = g.pick(("plate", "scan"))
    counting = g.phase(layout)
    switch = [Ref(g.finite(once=True).name)] if g.seldom() else []
    if not _pair(g, layout, counting, switch) and g.seldom():
        _pair(g, layout, counting, switch)
    if g.seldom():
        g.emission(switch)
    return g.spec("conjugate", layout, steps=(3, 4, 2, 1), **counting)


def _pair(g: Grammar, layout: str, counting: dict[str, Any], switch: list[Ref]) -> bool:
    """A latent and what it is conjugate to; True where the latent has several coordinates."""
    prior, laws = g.pick(_PAIRS)
    law = g.pick(laws)
    copies = g.pick((0, 0, 2))
    size = 2 if prior != "dirichlet" or copies else g.pick((2, 3))
    by_scale = law == "normal" and prior != "normal"
    if by_scale:
        copies = 0
    given = (*g.some(switch, 1), *((Ref(COPY),) if copies and g.pick((False, True)) else ()))
    copying = g.pick(("plate", "event", "batch"))
    form = "affine" if prior == "normal" and not copies and g.seldom() else ""
    g.add(prior, once=True, size=size, copies=copies, copying=copying, given=given, form=form)
    latent = g.draws[-1].name
    pick = _which(g, layout, counting, switch) if copies else None
    settings: dict[str, Any] = {"size": size, "given": tuple(g.some(switch, 1))}
    if by_scale:
        g.add(law, "stream", scale_of=latent, scale_form={"gamma": "precision"}.get(prior, "variance"), **settings)
    elif prior == "normal":
        g.add(law, "stream", terms=(Term(Ref(latent), pick=pick),), **settings)
    else:
        exposure = g.add("uniform", "context").name if prior == "gamma" and g.seldom() else ""
        forms = {"beta": ("", "", "complement"), "gamma": ("", "rescaled")}.get(prior, ("",))
        form = g.pick(forms)
        if switch and not copies and prior == "beta" and g.pick((False, True)):
            form, pick = "switched", switch[0]
        draw = g.add(law, "stream", of=latent, pick=pick, form=form, exposure=exposure, **settings)
        # Which copy counts may be the last value itself: rows of a transition matrix.
        if copies and layout == "scan" and draw.values == 2 and g.pick((False, True)):
            g.draws[-1] = dataclasses.replace(draw, pick=Ref(draw.name, 1))
    return copies > 0 or size > 2


def _which(g: Grammar, layout: str, counting: dict[str, Any], switch: list[Ref]) -> Ref:
    """A two-valued reference."""
    options = [ref for ref in switch if next(d for d in g.draws if d.name == ref.site).values == 2]
    options += [Ref(PHASE)] if counting.get("period") == 2 else []
    if options and g.often():
        return g.pick(options)
    return Ref(g.add("bernoulli", "context").name)


def regression(g: Grammar) -> Spec:
    """Linear regression on inputs, on earlier values, or both, with known or unknown noise."""
    layout = g.pick(("plate", "scan"))
    counting = g.phase(layout)
    switch = [Ref(g.finite(once=True).name)] if g.seldom() else []
    noise = g.pick(("", "", "gamma", "inverse_gamma"))
    scale: dict[str, Any] = {}
    if noise:
        form = "precision" if noise == "gamma" else "variance"
        scale = {"scale_of": g.add(noise, once=True, given=tuple(g.some(switch, 1))).name, "scale_form": form}
    kind = g.pick(("slope", "line", "vector", "joint", "echo") if not noise else ("slope", "echo"))
    given, terms = tuple(g.some(switch, 1)), []
    if kind in ("vector", "joint"):
        if kind == "vector":
            weights = g.add("normal", once=True, copies=2, copying=g.pick(("plate", "event", "batch")), given=given)
        else:
            weights = g.add("mvnormal", once=True, given=given, form=g.pick(("", "covariance")))
        inputs = g.add("normal", "context", copies=2, copying="event")
        terms.append(Term(Ref(weights.name), times=Ref(inputs.name)))
    else:
        weight = g.add("normal", once=True, given=given, form="affine" if g.seldom() else "", **scale)
        target = g.name()
        if kind != "echo" or layout != "scan":
            terms.append(Term(Ref(weight.name), times=Ref(g.add("normal", "context").name)))
        else:
            terms.append(Term(Ref(weight.name), times=Ref(target, 1)))
        if kind == "line":
            terms.append(Term(Ref(g.add("normal", once=True).name)))
        if layout == "scan" and g.seldom():
            terms.append(Term(Ref(target, 1)))
        counted = (Ref(PHASE),) if counting else ()
        g.add("normal", "stream", name=target, terms=tuple(terms), given=(*given, *counted), **scale)
        return g.spec("regression", layout, steps=(3, 2, 4, 1), **counting)
    g.add("normal", "stream", terms=tuple(terms), given=given)
    return g.spec("regression", layout, steps=(3, 2, 4, 1), **counting)


def gaussian_chain(g: Grammar) -> Spec:
    """Gaussian states in a scan, perhaps driven by what was observed; a finite latent may choose the dynamics."""
    counting = g.phase("scan")
    beside = [Ref(g.finite(once=True).name)] if g.seldom() else []
    beside += [Ref(PHASE)] if counting else []
    bias = [Ref(g.add("normal", once=True, given=tuple(r for r in g.some(beside, 1) if r.site != PHASE)).name)]
    bias = bias if g.seldom() else g.draws.pop() and []
    joint = g.seldom()
    names = [g.name()] if joint else [g.name() for _ in range(g.pick((1, 1, 2)))]
    observed, emits_first = g.name(), g.pick((False, True))
    once, moves = g.draws, []
    for name in names:
        law = "mvnormal" if joint else "normal"
        g.draws = once
        start = g.add(law, once=True).name if g.pick((False, True)) else ""
        g.draws = moves
        others = [Ref(each, 1) for each in names if each != name]
        terms = [Ref(name, 1), *g.some([*others, *bias, Ref(observed, 1)])]
        form = g.pick(("", "covariance")) if joint else ""
        g.add(law, name=name, given=tuple(g.some(beside)), terms=tuple(map(Term, terms)), start=start, form=form)
    g.draws, states = [], [Ref(name, 1 if emits_first else 0) for name in names]
    law = g.pick(("normal", "normal", "mvnormal"))
    first = g.pick(states)
    terms = [first, *g.some([*(state for state in states if state != first), *bias], 1)]
    g.add(law, "stream", name=observed, given=tuple(g.some(beside)), terms=tuple(map(Term, terms)))
    if g.seldom():
        terms = [g.pick(states), *g.some([Ref(observed)], 1)]
        g.add("normal", "stream", terms=tuple(map(Term, terms)))
    if g.seldom() and beside:
        g.emission(beside[:1])
    streams = g.draws
    spec = g.spec("gaussian chain", "scan", steps=(3, 2, 4, 1), **counting)
    return dataclasses.replace(spec, draws=(*once, *streams, *moves) if emits_first else (*once, *moves, *streams))


def local_gaussian(g: Grammar) -> Spec:
    """A Gaussian latent of every step in a plate, seen through one or two stream sites, perhaps beside one drawn once."""
    switch = [Ref(g.finite(once=True).name)] if g.seldom() else []
    static = [Ref(g.add("normal", once=True).name)] if g.pick((False, True)) else []
    own = Ref(g.add("normal", given=tuple(g.some(switch, 1)), terms=tuple(map(Term, g.some(static, 1)))).name)
    first = g.add("normal", "stream", given=tuple(g.some(switch, 1)), terms=tuple(map(Term, [own, *g.some(static, 1)])))
    if g.pick((False, True)):
        g.add("normal", "stream", terms=tuple(map(Term, [own, *g.some([Ref(first.name)], 1)])))
    return g.spec("local gaussian", "plate", steps=(2, 3, 1))
