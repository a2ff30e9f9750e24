"""Random programs out of every engine's reach, each a near relative of one within: they must be refused, never answered wrongly.

Families of `program_grammar`, which see. Every spec says why it is out of reach.
"""

import dataclasses

from ppl_tunnels.verification.program_grammar import Grammar, memory
from ppl_tunnels.verification.random_programs import Ref, Spec, Term


def not_conjugate(g: Grammar) -> Spec:
    """A parameter that is a conjugate latent, but not plainly, or not always."""
    layout = g.pick(("plate", "scan"))
    prior, law, form, why = g.pick(
        (
            ("beta", "bernoulli", "squared", "the probability is a square"),
            ("beta", "binomial", "squared", "the probability is a square"),
            ("beta", "geometric", "squared", "the probability is a square"),
            ("gamma", "poisson", "shifted", "the rate has something added to it"),
            ("gamma", "exponential", "shifted", "the rate has something added to it"),
            ("normal", "bernoulli", "logistic", "a Gaussian latent has a Bernoulli likelihood"),
            ("beta", "poisson", "", "a Beta latent has a Poisson likelihood"),
        )
    )
    latent = g.add(prior, once=True).name
    g.add(law, "stream", of=latent, form=form)
    return g.spec("not conjugate", layout, steps=(3, 2, 4), reach=f"outside: {why}")


def conjugate_for_some_data(g: Grammar) -> Spec:
    """Conjugate until a one was seen."""
    latent, target = g.add("beta", once=True).name, g.name()
    law = g.pick(("bernoulli", "binomial"))
    g.add(law, "stream", name=target, of=latent, form="sometimes squared", pick=Ref(target, 1))
    return g.spec(
        "conjugate for some data", "scan", steps=(3, 2, 4), reach="outside: conjugate only until a one is seen"
    )


def hidden_choice(g: Grammar) -> Spec:
    """A finite latent of every step says whether the conjugate one counts, so that the likelihood is a mixture."""
    layout = g.pick(("plate", "scan"))
    latent, choice = g.add("beta", once=True).name, Ref(g.add("bernoulli").name)
    if layout == "scan" and g.pick((False, True)):
        last = g.draws.pop()
        g.add("bernoulli", name=last.name, given=(Ref(last.name, 1),))
        choice = Ref(last.name)
    g.add(g.pick(("bernoulli", "binomial")), "stream", of=latent, form="switched", pick=choice)
    return g.spec(
        "hidden choice", layout, steps=(2, 3), reach="outside: the likelihood of a continuous latent is a mixture"
    )


def curved(g: Grammar) -> Spec:
    """A Gaussian latent behind a sine."""
    layout = g.pick(("plate", "scan"))
    latent = Ref(g.add("normal", once=True).name)
    g.add("normal", "stream", terms=(Term(latent),), form="sine")
    return g.spec("curved", layout, steps=(3, 2), reach="outside: a mean is not linear in a Gaussian latent")


def wrong_scale(g: Grammar) -> Spec:
    """Unknown noise, and a slope whose prior does not scale with it: conditionally conjugate only."""
    layout = g.pick(("plate", "scan"))
    noise, form = g.pick((("gamma", "precision"), ("inverse_gamma", "variance")))
    spread = g.add(noise, once=True).name
    slope = Ref(g.add("normal", once=True).name)
    inputs = Ref(g.add("normal", "context").name)
    g.add("normal", "stream", terms=(Term(slope, times=inputs),), scale_of=spread, scale_form=form)
    return g.spec("wrong scale", layout, steps=(3, 2), reach="outside: the slope's prior does not scale with the noise")


def unclosed(g: Grammar) -> Spec:
    """A carry that never comes back to where it was, over too many steps to enumerate."""
    spec = memory(g)
    return dataclasses.replace(
        spec, family="unclosed", steps=40, reach="outside: the carry takes a new value for every history"
    )
