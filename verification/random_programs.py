"""Small NumPyro programs described as plain data, and the wind tunnels that they describe.

A `Spec` is a dynamic Bayesian network in program order: draws made once, then draws made at every step of a plate or a scan.
The law of a draw takes its numbers from a table, whose row is picked by finite values drawn before (or at the last step, or
the one before that), and, where it has one, from a continuous latent. Most tables are context sites, so that one compiled
shape covers many parameter settings. Anything said by a spec can be said by hand in a few lines of NumPyro; `build` says it.
"""

import dataclasses
import functools
import json
from typing import Any

from ppl_tunnels.errors import TunnelError
from ppl_tunnels.tunnel import WindTunnel, wind_tunnel

# What picks a row besides a site: the step number modulo `Spec.period`, and the place within a draw's own copies.
PHASE, COPY = ":phase", ":copy"
INSIDE = "inside"

FINITE = ("categorical", "bernoulli", "binomial")
COUNTS = ("geometric", "poisson")
GAUSSIAN = ("normal", "mvnormal")


@dataclasses.dataclass(frozen=True)
class Ref:
    """A value drawn before.

    Attributes:
        site: its name, or `PHASE` or `COPY`.
        lag: 0 for a value drawn once or at this step, 1 for the last step's, 2 for the one before.
        element: which of its copies, or -1 where it has none.
    """

    site: str
    lag: int = 0
    element: int = -1


@dataclasses.dataclass(frozen=True)
class Term:
    """A summand of a Normal's mean.

    Attributes:
        value: a real value or vector.
        times: an input, or an earlier value, to multiply it by (a scalar product of vectors); else it is multiplied by numbers
            of the draw's own table.
        pick: a finite value that picks one of its copies.
    """

    value: Ref
    times: Ref | None = None
    pick: Ref | None = None


@dataclasses.dataclass(frozen=True)
class Draw:
    """One sample statement.

    Attributes:
        name: of the site.
        law: "categorical", "bernoulli", "binomial", "geometric", "poisson", "exponential", "normal", "mvnormal", "beta",
            "dirichlet", "gamma", "inverse_gamma", "uniform"; or "leak", half its last value plus the value it is given, which
            is computed and not drawn.
        role: "latent", "stream", "context", or "computed" (a leak).
        once: drawn once an episode (else at every step).
        size: categories, trials or dimensions.
        given: what picks the row of its table.
        numbers: the context site that holds its table; "" for constants.
        zeros: whether small probabilities of the table become hard zeros.
        copies: independent copies (0: it is a scalar); `copying` says how: "plate", "event" or "batch".
        of: the continuous latent that supplies its parameter; `pick` picks one of its copies, `form` says how it enters.
        form: how that latent enters: "" as it is, "complement", "rescaled", and, out of reach, "squared", "shifted", "logistic";
            "switched" means only where `pick` is 0 (else a number of the table), "sometimes squared" squared where it is not.
            Of other laws: "logits", "affine" (a transformed standard Normal), "covariance", "sine" (of the sum of its terms).
        exposure: the positive input that multiplies the rate.
        terms: summands of a Normal's mean.
        scale_of: the variance or precision (`scale_form`) latent that a Normal's scale comes from.
        start: the site drawn once whose value stands for the last step's at the first step.
        own_start: before the first step stands a value of its own, with rows of its own.
        row_carried: the carry holds its row for the next step, instead of what picks it.
    """

    name: str
    law: str
    role: str = "latent"
    once: bool = False
    size: int = 2
    given: tuple[Ref, ...] = ()
    numbers: str = ""
    zeros: bool = False
    copies: int = 0
    copying: str = "plate"
    of: str = ""
    pick: Ref | None = None
    form: str = ""
    exposure: str = ""
    terms: tuple[Term, ...] = ()
    scale_of: str = ""
    scale_form: str = "precision"
    start: str = ""
    own_start: bool = False
    row_carried: bool = False

    @property
    def refs(self) -> tuple[Ref, ...]:
        """Everything it refers to."""
        of_terms = (ref for term in self.terms for ref in (term.value, term.times, term.pick) if ref)
        own = (Ref(self.name, 1),) if self.law == "leak" else ()
        return (*self.given, *of_terms, *((self.pick,) if self.pick else ()), *own)

    @property
    def has_table(self) -> bool:
        """Whether its law takes numbers of its own."""
        if self.of:
            return self.form in ("rescaled", "switched", "shifted")
        return self.law not in ("uniform", "leak")

    @property
    def values(self) -> int:
        """How many values a finite draw can take (0: not finite)."""
        return {"categorical": self.size, "bernoulli": 2, "binomial": self.size + 1}.get(self.law, 0)


@dataclasses.dataclass(frozen=True)
class Spec:
    """A program.

    Attributes:
        family: which part of the grammar it comes from.
        layout: "plate", "scan" or "none" (a single step).
        steps: its length.
        draws: in program order, those drawn once first.
        predict: the predicted site.
        seed: of its constants.
        reach: "inside" where an engine must derive the oracle, else "outside: why".
        period: the step number counts modulo this (0: nothing counts).
        phase_input: the count comes in the scan's inputs instead of the carry.
        step_name: of the plate.
    """

    family: str
    layout: str
    steps: int
    draws: tuple[Draw, ...]
    predict: str
    seed: int = 0
    reach: str = INSIDE
    period: int = 0
    phase_input: bool = False
    step_name: str = "step"

    @property
    def inside(self) -> bool:
        """Whether an engine must derive its oracle."""
        return self.reach == INSIDE

    def draw(self, name: str) -> Draw:
        """The draw of this name."""
        return next(draw for draw in self.draws if draw.name == name)

    @property
    def shape(self) -> "Spec":
        """The same up to names and constants: equal shapes are the same program in other words."""
        names: dict[str, str] = {}
        for draw in self.draws:
            names[draw.name] = f"s{len(names)}"
            if draw.numbers:
                names[draw.numbers] = f"n{len(names)}"
        renamed = _renamed(self.draws, names)
        return dataclasses.replace(self, draws=renamed, predict=names[self.predict], seed=0, step_name="step")

    def to_json(self) -> str:
        """One line of JSON."""
        return json.dumps(dataclasses.asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> "Spec":
        """The spec that `to_json` wrote."""
        data = json.loads(text)
        return cls(**{**data, "draws": tuple(_draw(each) for each in data["draws"])})


def _renamed(value: Any, names: dict[str, str]) -> Any:
    if isinstance(value, tuple):
        return tuple(_renamed(item, names) for item in value)
    if isinstance(value, Draw | Ref | Term):
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        return type(value)(**{name: item if name in _WORDS else _renamed(item, names) for name, item in fields.items()})
    return names.get(value, value) if isinstance(value, str) else value


# Fields that hold a word of the grammar, which a site could be called by chance.
_WORDS = ("law", "role", "copying", "form", "scale_form")


def _draw(data: dict[str, Any]) -> Draw:
    def ref(item):
        return None if item is None else Ref(**item)

    terms = tuple(Term(**{name: ref(item) for name, item in each.items()}) for each in data["terms"])
    given = tuple(Ref(**each) for each in data["given"])
    return Draw(**{**data, "given": given, "terms": terms, "pick": ref(data["pick"])})


@functools.lru_cache(maxsize=64)
def build(spec: Spec) -> WindTunnel:
    """The tunnel that a spec describes; equal specs share one.

    Raises:
        TunnelError: two sites of one name, or a reference to what is not drawn before.

    Example:
        >>> coin = Spec("coins", "plate", 3, (Draw("bias", "beta", once=True), Draw("x", "bernoulli", "stream", of="bias")), "x")
        >>> build(coin).reading.named("latent"), build(coin).length
        (('bias',), 3)
        >>> Spec.from_json(coin.to_json()) == coin
        True
    """
    from ppl_tunnels.verification.program_interpreter import Interpreter

    names = [name for draw in spec.draws for name in (draw.numbers, draw.name) if name]
    if len(set(names)) != len(names):
        raise TunnelError(f"the spec names two sites alike: {sorted(names)}; give each its own name")
    of_role = {role: tuple(draw.name for draw in spec.draws if draw.role == role) for role in ("stream", "context")}

    def program():
        Interpreter(spec).run()

    declare = wind_tunnel(
        stream=of_role["stream"],
        predict=spec.predict,
        context=(*(draw.numbers for draw in spec.draws if draw.numbers), *of_role["context"]),
        name=f"random {spec.family}",
    )
    return declare(program)
