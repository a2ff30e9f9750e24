"""Running a spec of `random_programs` as the NumPyro program that it describes.

Numbers of a table lie in (0, 1) and are mapped to what a law takes: probabilities as they are, rates and scales to (.4, 2),
means to (-1.5, 1.5), coefficients to (-.8, .8), concentrations to (1, 3).
"""

import contextlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.contrib.control_flow import scan

from ppl_tunnels.verification.random_programs import COPY, PHASE, Draw, Ref, Spec, Term

# Probabilities below it become hard zeros; a row of six entries or fewer always keeps one.
_NEGLIGIBLE = 0.15
_OWN_NUMBERS = {"normal": 2, "beta": 2, "gamma": 2, "inverse_gamma": 2}

Values = dict[tuple[str, int], Any]


class Interpreter:
    """One run of the program of a spec."""

    def __init__(self, spec: Spec):
        self.spec = spec
        self.tables: dict[str, Any] = {}
        self.once: Values = {}

    def run(self) -> None:
        """Make every draw, in order."""
        spec = self.spec
        self.tables = {draw.name: self._table(draw, place) for place, draw in enumerate(spec.draws)}
        for draw in spec.draws:
            if draw.once:
                self.once[draw.name, 0] = self._sample(draw, self.once)
        each_step = [draw for draw in spec.draws if not draw.once]
        if spec.layout == "scan":
            self._scan(each_step)
            return
        values = dict(self.once)
        if spec.period:
            values[PHASE, 0] = jnp.arange(spec.steps) % spec.period
        with numpyro.plate(spec.step_name, spec.steps) if spec.layout == "plate" else contextlib.nullcontext():
            for draw in each_step:
                values[draw.name, 0] = self._sample(draw, values)

    def _scan(self, each_step: list[Draw]) -> None:
        spec, by_row = self.spec, [draw for draw in each_step if draw.row_carried]
        lags: dict[str, int] = {}
        for draw in each_step:
            for ref in draw.refs:
                # A row is looked up at the end of the step before.
                lags[ref.site] = max(lags.get(ref.site, 0), ref.lag - draw.row_carried)
        before = {(name, lag): self._before(name) for name, most in lags.items() for lag in range(1, most + 1)}
        start = {**self.once, **{(draw.name, lag): self._before(draw.name) for draw in each_step for lag in (1, 2)}}
        rows = {draw.name: self._row(draw, start) for draw in by_row}
        counting = bool(spec.period) and not spec.phase_input

        def step(carry, phase):
            last, rows, count = carry
            values = {**self.once, **last, (PHASE, 0): phase if spec.phase_input else count}
            for draw in each_step:
                values[draw.name, 0] = self._sample(draw, values, rows.get(draw.name))
            next_values = {
                (name, lag + 1): value for (name, lag), value in values.items() if (name, lag) not in self.once
            }
            rows = {draw.name: self._row(draw, {**self.once, **next_values}) for draw in by_row}
            last = {place: jnp.asarray(next_values[place], value.dtype) for place, value in before.items()}
            return (last, rows, (count + 1) % spec.period if counting else count), None

        inputs = jnp.arange(spec.steps) % spec.period if spec.phase_input else None
        scan(step, (before, rows, jnp.array(0) if counting else ()), inputs, length=spec.steps)

    def _before(self, name: str) -> jax.Array:
        """What stands for a site's value before the first step."""
        draw = self.spec.draw(name)
        if draw.start:
            return jnp.asarray(self.once[draw.start, 0], int if draw.values else float)
        if draw.values or draw.law in ("geometric", "poisson"):
            return jnp.array(draw.values if draw.own_start else 0)
        return jnp.zeros(draw.size if draw.law == "mvnormal" else ())

    def _table(self, draw: Draw, place: int) -> jax.Array | None:
        """Numbers in (0, 1), `[*rows, number]`; a row of a Categorical sums to one."""
        if not draw.has_table:
            return None
        count = self._numbers(draw)
        shape = (*(self._choices(draw, ref) for ref in draw.given), count)
        if draw.numbers:
            table = jnp.asarray(numpyro.sample(draw.numbers, dist.Uniform(0.0, 1.0).expand(shape).to_event(len(shape))))
        else:
            table = jnp.asarray(np.random.default_rng((self.spec.seed, place)).random(shape))
        simplex = draw.law == "categorical"
        if simplex:  # normalised exponentials are uniform on the simplex
            table = -jnp.log(table)
            table = table / table.sum(-1, keepdims=True)
        if draw.zeros:
            table = jnp.where(table < _NEGLIGIBLE, 0.0, table)
            return table / table.sum(-1, keepdims=True) if simplex else jnp.where(table > 1 - _NEGLIGIBLE, 1.0, table)
        return table

    def _choices(self, draw: Draw, ref: Ref) -> int:
        if ref.site in (PHASE, COPY):
            return self.spec.period if ref.site == PHASE else draw.copies
        of = self.spec.draw(ref.site)
        return of.values + (of.own_start and ref.lag > 0)

    def _numbers(self, draw: Draw) -> int:
        if draw.of:
            return 1
        size = draw.size
        by_size = {"categorical": size, "dirichlet": size, "mvnormal": 2 * size + 1}
        return by_size.get(draw.law, _OWN_NUMBERS.get(draw.law, 1)) + sum(
            self._coefficients(draw, t) for t in draw.terms
        )

    def _coefficients(self, draw: Draw, term: Term) -> int:
        width = 1 if term.pick is not None or not self._is_vector(term.value) else self._width(term.value)
        return 0 if term.times else width * (draw.size if draw.law == "mvnormal" else 1)

    def _is_vector(self, ref: Ref) -> bool:
        of = self.spec.draw(ref.site)
        return of.law == "mvnormal" or (of.copies > 0 and ref.element < 0)

    def _width(self, ref: Ref) -> int:
        of = self.spec.draw(ref.site)
        return of.size if of.law == "mvnormal" else of.copies

    def _row(self, draw: Draw, values: Values) -> Any:
        table = self.tables[draw.name]
        index = tuple(jnp.arange(draw.copies) if ref.site == COPY else _value(ref, values) for ref in draw.given)
        return table if table is None or not index else table[index]

    def _sample(self, draw: Draw, values: Values, row: Any = None) -> Any:
        if draw.law == "leak":
            return values[draw.name, 1] / 2 + _value(draw.given[0], values)
        fn = self._law(draw, self._row(draw, values) if row is None else row, values)
        if not draw.copies:
            return numpyro.sample(draw.name, fn)
        if draw.copying == "plate":
            with numpyro.plate(f"copies of {draw.name}", draw.copies):
                return numpyro.sample(draw.name, fn)
        # Rows picked within a plate of steps already have its axis.
        copied = fn.batch_shape if COPY in {ref.site for ref in draw.given} else (*fn.batch_shape, draw.copies)
        fn = fn if copied == fn.batch_shape else fn.expand([draw.copies]) if not fn.batch_shape else fn.expand(copied)
        return numpyro.sample(draw.name, fn.to_event(1) if draw.copying == "event" else fn)

    def _law(self, draw: Draw, row: Any, values: Values) -> Any:
        law = draw.law
        if law == "categorical":
            probs = _of(draw, row, values) if draw.of else row
            return dist.Categorical(logits=jnp.log(probs)) if draw.form == "logits" else dist.Categorical(probs)
        if law in ("bernoulli", "binomial", "geometric"):
            p = _of(draw, row, values) if draw.of else row[..., 0]
            if law == "bernoulli":
                return dist.Bernoulli(logits=jnp.log(p) - jnp.log1p(-p)) if draw.form == "logits" else dist.Bernoulli(p)
            return dist.Binomial(draw.size, p) if law == "binomial" else dist.Geometric(p)
        if law in ("poisson", "exponential"):
            rate = _of(draw, row, values) if draw.of else _positive(row[..., 0])
            rate = rate * values[draw.exposure, 0] if draw.exposure else rate
            return dist.Poisson(rate) if law == "poisson" else dist.Exponential(rate)
        if law == "normal":
            return self._normal(draw, row, values)
        if law == "mvnormal":
            return self._mvnormal(draw, row, values)
        if law == "dirichlet":
            return dist.Dirichlet(_concentration(row))
        if law == "uniform":
            return dist.Uniform(0.5, 2.0)
        first, second = row[..., 0], row[..., 1]
        if law == "beta":
            return dist.Beta(_concentration(first), _concentration(second))
        return {"gamma": dist.Gamma, "inverse_gamma": dist.InverseGamma}[law](_concentration(first), _positive(second))

    def _normal(self, draw: Draw, row: Any, values: Values) -> dist.Distribution:
        scale = _positive(row[..., 1])
        if draw.scale_of:
            spread = values[draw.scale_of, 0]
            scale = scale * (spread**-0.5 if draw.scale_form == "precision" else spread**0.5)
        mean, place = _real(row[..., 0]), 2
        for term in draw.terms:
            value, vector = self._term(term, values)
            count = self._coefficients(draw, term)
            weight = _value(term.times, values) if term.times else _coefficient(row[..., place : place + count])
            weight = weight if vector or term.times else weight[..., 0]
            mean, place = mean + ((weight * value).sum(-1) if vector else weight * value), place + count
        if draw.form == "sine":
            mean = jnp.sin(3 * mean)
        if draw.form == "affine":
            standard = dist.Normal(jnp.zeros_like(mean), 1.0)
            return dist.TransformedDistribution(standard, dist.transforms.AffineTransform(mean, scale))
        return dist.Normal(mean, scale)

    def _mvnormal(self, draw: Draw, row: Any, values: Values) -> dist.Distribution:
        size = draw.size
        mean, scales, place = _real(row[..., :size]), _positive(row[..., size : 2 * size]), 2 * size + 1
        together = _coefficient(row[..., 2 * size]) if size > 1 else 0.0
        tril = jnp.eye(size) * scales[..., None]
        if size > 1:
            tril = tril.at[..., 1, 0].set(together * scales[..., 1])
            tril = tril.at[..., 1, 1].set(jnp.sqrt(1 - together**2) * scales[..., 1])
        for term in draw.terms:
            value, vector = self._term(term, values)
            count = self._coefficients(draw, term)
            weight = _coefficient(row[..., place : place + count])
            weight = weight.reshape(*weight.shape[:-1], size, count // size)
            mean = mean + (weight * (value[..., None, :] if vector else jnp.asarray(value)[..., None, None])).sum(-1)
            place += count
        if draw.form == "covariance":
            return dist.MultivariateNormal(mean, covariance_matrix=tril @ jnp.swapaxes(tril, -1, -2))
        return dist.MultivariateNormal(mean, scale_tril=tril)

    def _term(self, term: Term, values: Values) -> tuple[Any, bool]:
        value = _value(term.value, values)
        if term.pick is not None:
            return value[_value(term.pick, values)], False
        return value, self._is_vector(term.value)


def _value(ref: Ref, values: Values) -> Any:
    value = values[ref.site, ref.lag]
    return value[..., ref.element] if ref.element >= 0 else value


def _of(draw: Draw, row: Any, values: Values) -> Any:
    """The parameter that a continuous latent supplies."""
    value, form = values[draw.of, 0], draw.form
    chosen = None if draw.pick is None else _value(draw.pick, values)
    if form == "switched":
        return jnp.where(chosen == 0, value, row[..., 0])
    if form == "sometimes squared":
        return jnp.where(chosen == 0, value, value**2)
    value = value if chosen is None else value[chosen]
    if form == "rescaled":
        return value * _positive(row[..., 0])
    if form == "shifted":
        return value + row[..., 0]
    if form == "complement":
        return 1 - value
    if form == "squared":
        return value**2
    return jax.nn.sigmoid(value) if form == "logistic" else value


def _positive(number: Any) -> Any:
    return 0.4 + 1.6 * number


def _real(number: Any) -> Any:
    return 3 * number - 1.5


def _coefficient(number: Any) -> Any:
    return 1.6 * number - 0.8


def _concentration(number: Any) -> Any:
    return 1 + 2 * number
