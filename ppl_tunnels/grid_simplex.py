r"""Rows of probabilities on a grid: Dirichlet draws floored, rounded and forced to sum to one, as published tunnels have them.

    x ~ Dirichlet(a, …, a);    x ← max(x, floor);    x ← x / Σ x;    n = max(round(x / step), floor / step) grid steps,

then the excess of Σ n over 1 / step is taken away one grid step at a time from the largest entries first (in descending order,
cyclically, passing over entries at the floor), and a shortfall is added to the smallest first (in ascending order, cyclically).
Entries of equal size are taken in their order within the row.

Source: the generator of "The Bayesian Geometry of Transformer Attention" (arXiv 2512.22471), in its authors' code: a = 1,
floor .05, step .01. There the order among equal entries is left to the sorting routine; here it is fixed.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from numpyro.distributions import constraints

# How far from the grid a value may lie: sums such as .1 + .2 miss it by rounding.
_SLACK = 1e-9


class _GridSimplex(constraints.ParameterFreeConstraint):
    """Rows on a grid that sum to one, every entry at least at the floor."""

    is_discrete = False
    event_dim = 1

    def __init__(self, size: int, floor: float, step: float):
        self.size, self.floor, self.step = size, floor, step

    @property
    def grid_size(self) -> int:
        """How many rows there are."""
        free = round((1 - self.floor * self.size) / self.step)
        return math.comb(free + self.size - 1, self.size - 1)

    def __call__(self, x):
        units = x / self.step
        on_grid = jnp.abs(units - jnp.rint(units)) < _SLACK / self.step
        high = x > self.floor - _SLACK
        return jnp.all(on_grid & high, axis=-1) & (jnp.abs(jnp.sum(x, axis=-1) - 1) < _SLACK)

    def feasible_like(self, prototype):
        size = jnp.shape(prototype)[-1]
        row = jnp.full(size, self.floor).at[0].set(1 - (size - 1) * self.floor)
        return jnp.broadcast_to(row, jnp.shape(prototype))

    def __repr__(self) -> str:
        return f"rows on a grid of {self.step:g} that sum to 1, each entry at least {self.floor:g}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _GridSimplex) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash((self.size, self.floor, self.step))


class RoundedDirichlet(dist.Distribution):
    """The law of the module, for sites that are revealed up front.

    The probability of a row is the volume of a polytope and has no closed form. `log_prob` is 0 on the grid and -inf off it,
    which leaves everything exact that conditions on the row; the site must be context, and programs in which it is anything
    else are refused (`normalised` is False).

    Args:
        size: entries of a row.
        concentration: a, the same for every entry.
        floor: the least probability, a multiple of `step`.
        step: of the grid; 1 / step is an integer.

    Example:
        >>> import jax
        >>> row = RoundedDirichlet(5).sample(jax.random.key(0))
        >>> abs(float(row.sum()) - 1) < 1e-6, float(row.min()) >= 0.05 - 1e-6
        (True, True)

    Raises:
        ValueError: the floors alone exceed one, or floor or step are not on the grid.
    """

    arg_constraints = {}  # noqa: RUF012  (NumPyro's own convention)
    pytree_aux_fields = ("size", "concentration", "floor", "step")
    normalised = False

    def __init__(
        self,
        size: int,
        concentration: float = 1.0,
        *,
        floor: float = 0.05,
        step: float = 0.01,
        validate_args: bool | None = None,
    ):
        self.size, self.concentration = int(size), float(concentration)
        self.floor, self.step = float(floor), float(step)
        whole = all(abs(number - round(number)) < 1e-6 for number in (1 / self.step, self.floor / self.step))
        if size < 1 or concentration <= 0 or not whole or self._floor * size > self._units:
            raise ValueError(
                f"RoundedDirichlet was given size={size}, concentration={concentration}, floor={floor}, step={step}; expected at least one "
                "entry, a positive concentration, 1/step and floor/step whole, and floor * size at most 1"
            )
        super().__init__((), (self.size,), validate_args=validate_args)

    @property
    def _units(self) -> int:
        return round(1 / self.step)

    @property
    def _floor(self) -> int:
        return round(self.floor / self.step)

    @property
    def support(self) -> constraints.Constraint:
        """Rows on the grid."""
        return _GridSimplex(self.size, self.floor, self.step)

    @property
    def element_support(self) -> np.ndarray:
        """What one entry can be, `[value]`: 0.05, 0.06, … 1 by default."""
        return np.arange(self._floor, self._units + 1) / self._units

    def sample(self, key, sample_shape=()) -> jax.Array:
        """Rows, `[*sample_shape, size]`."""
        shape = (*sample_shape, self.size)
        # Of exponential variables, Dirichlet(1, …, 1) takes one logarithm each.
        drawn = (
            jax.random.exponential(key, shape)
            if self.concentration == 1
            else jax.random.gamma(key, self.concentration, shape)
        )
        return self.rounded(drawn / jnp.sum(drawn, axis=-1, keepdims=True))

    def rounded(self, row: jax.Array) -> jax.Array:
        """Floored, rounded and forced to sum to one, `[..., size]`."""
        high = jnp.maximum(row, self.floor)
        units = jnp.rint(high / jnp.sum(high, axis=-1, keepdims=True) * self._units)
        units = jnp.maximum(units, self._floor).astype(jnp.int32)
        missing = self._units - jnp.sum(units, axis=-1, keepdims=True, dtype=jnp.int32)
        rank = _rank(units)
        grown = units + missing // self.size + (rank < missing % self.size)
        # From a table: a compiled division by a constant may miss k / 100 by its last digit.
        return jnp.asarray(np.arange(self._units + 1) / self._units)[
            jnp.where(missing >= 0, grown, self._shrunk(units, -missing))
        ]

    def _shrunk(self, units: jax.Array, excess: jax.Array) -> jax.Array:
        """Grid steps taken away from the largest first, round by round."""
        rank = _rank(-units)
        earlier = rank[..., None, :] < rank[..., :, None]
        # Rounding adds half a grid step an entry and the floor at most one: no row needs more rounds than that.
        for _ in range(2 * self.size):
            can = units > self._floor
            turn = jnp.sum(earlier & can[..., None, :], axis=-1, dtype=jnp.int32)
            taken = can & (turn < excess)
            units = units - taken
            excess = excess - jnp.sum(taken, axis=-1, keepdims=True, dtype=jnp.int32)
        return units

    def log_prob(self, value) -> jax.Array:
        """0 on the grid, -inf off it; see the class."""
        return jnp.where(self.support(value), 0.0, -jnp.inf)


def _rank(values: jax.Array) -> jax.Array:
    """Where each entry stands in ascending order, equal ones in order of place, int32 `[..., entry]`."""
    place = np.arange(values.shape[-1])
    before = (values[..., None, :] < values[..., :, None]) | (
        (values[..., None, :] == values[..., :, None]) & (place[None, :] < place[:, None])
    )
    return jnp.sum(before, axis=-1, dtype=jnp.int32)
