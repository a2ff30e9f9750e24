"""Running a NumPyro program with chosen values, in one layout: the step axis first.

A program is a plain function with `numpyro.sample` statements. Here it is run under handlers that substitute values and
record, for each site, the law it was drawn from. Everything below is pure and traceable, so it can be vmapped over
hypotheses and episodes; it runs under `jax.enable_x64(True)` only (see `require_x64`).
"""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.core import Tracer
from numpyro import handlers
from numpyro.distributions.distribution import validation_enabled

from ppl_tunnels.errors import TunnelError
from ppl_tunnels.oracles.densities import exact_log_prob

Values = Mapping[str, jax.Array]


@dataclasses.dataclass(frozen=True)
class Site:
    """One sample statement of the program.

    Attributes:
        name: as the program names it.
        role: "context", "stream" or "latent".
        per_step: whether it is drawn at every step (else once an episode).
        step_axis: where the step axis lies in the program's own value; None for a site drawn once, and for the sites of a
            program without a step axis, whose single step is an axis that the layout adds.
        shape: of the program's own value.
        event_dim: how many of its trailing axes are one draw.
        dtype: of the value, in double precision mode.
        support: all the values one draw can take, `[symbol, *event]`, or None if they are not finitely many (or too many
            to list: then `support_size` says how many).
        support_size: how many values one draw can take, or None if infinitely many.
        constraint: NumPyro's description of the support; `constraints.dependent` where other values decide it.
        elements: what one element of a draw can be, `[value]`, where the law says (`element_support`); None elsewhere.
    """

    name: str
    role: str
    per_step: bool
    step_axis: int | None
    shape: tuple[int, ...]
    event_dim: int
    dtype: Any
    support: Any
    support_size: int | None
    constraint: Any
    elements: Any = None

    @property
    def event_shape(self) -> tuple[int, ...]:
        return self.shape[len(self.shape) - self.event_dim :]

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """Axes of independent draws, the step axis first."""
        batch = list(self.shape[: len(self.shape) - self.event_dim])
        if self.step_axis is not None:
            batch.insert(0, batch.pop(self.step_axis))
        elif self.per_step:
            batch.insert(0, 1)
        return tuple(batch)

    @property
    def layout(self) -> tuple[int, ...]:
        """The shape of one episode's value with the step axis first."""
        return self.batch_shape + self.event_shape


@contextlib.contextmanager
def double_precision() -> Iterator[None]:
    """Programs are traced in double precision and with NumPyro's argument validation off (traced values have none)."""
    with jax.enable_x64(True), validation_enabled(False):
        yield


@contextlib.contextmanager
def compile_time() -> Iterator[None]:
    """Like `double_precision`, with concrete values even while somebody else's function is being traced."""
    with jax.ensure_compile_time_eval(), double_precision():
        yield


# What is run once is compiled quickly, not well.
_QUICKLY: Any = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}


def evaluated(function: Callable[..., Any], *arguments: Any) -> Any:
    """`function(*arguments)` in double precision, compiled for this one call; concrete even inside somebody else's jit.

    Much quicker than the same under `compile_time`, which compiles every operation on constants by itself.
    """
    return compiled_quickly(function, *arguments)(*arguments)


def compiled_quickly(function: Callable[..., Any], *arguments: Any) -> Callable[..., Any]:
    """The function of `evaluated`, for arguments of these shapes, to be called more than once."""
    with double_precision():
        compiled = jax.jit(function).lower(*arguments).compile(compiler_options=_QUICKLY)

    def call(*given: Any) -> Any:
        with double_precision():
            return compiled(*given)

    return call


def require_x64(what: str, *arrays: Any) -> None:
    """Refuse to be traced inside somebody else's single-precision jit: modes cannot be mixed within one trace."""
    if jax.config.jax_enable_x64:
        return
    # Concrete arguments do not help: inside a jit, whatever is computed from them becomes part of its trace.
    if any(isinstance(leaf, Tracer) for leaf in (*jax.tree.leaves(arrays), jnp.zeros(()))):
        raise TunnelError(
            f"{what} was called inside a jit that runs in single precision; oracles are exact in double precision only. "
            "Call your jitted function inside 'with jax.enable_x64(True):' (model parameters may stay float32)."
        )


def trace_program(program: Callable[[], Any], values: Values, key: jax.Array | None = None) -> dict[str, dict]:
    """Run the program once; sites in `values` take those values, the others are drawn with `key`."""
    seeded = handlers.seed(program, key) if key is not None else program
    try:
        # `scan` needs jax arrays: a NumPy array indexed by its traced counter would fail.
        substituted = {name: jnp.asarray(value) for name, value in values.items()}
        return handlers.trace(handlers.substitute(seeded, data=substituted)).get_trace()
    except (jax.errors.TracerBoolConversionError, jax.errors.ConcretizationTypeError) as error:
        raise TunnelError(
            "the program makes a Python decision ('if', 'int()', a shape) on a sampled value, so it cannot be traced for "
            "all hypotheses at once; use jnp.where, jax.lax.cond or jax.lax.select instead. "
            f"JAX says: {str(error).splitlines()[0]}"
        ) from error


def to_layout(value: Any, site: Site) -> Any:
    """The program's own value (NumPy or JAX) -> step axis first."""
    if site.step_axis is not None:
        return (np if isinstance(value, np.ndarray) else jnp).moveaxis(value, site.step_axis, 0)
    return value[None] if site.per_step else value


def from_layout(value: jax.Array, site: Site) -> jax.Array:
    """Step axis first -> the program's own value."""
    if site.step_axis is not None:
        return jnp.moveaxis(value, 0, site.step_axis)
    return value[0] if site.per_step else value


def site_log_prob(fn: dist.Distribution, value: jax.Array, site: Site) -> jax.Array:
    """Log-probability (nats) of a value in the program's own layout: `[step]` for a site of every step, else a scalar."""
    log_prob = jnp.broadcast_to(exact_log_prob(fn, value), site.shape[: len(site.shape) - site.event_dim])
    if not site.per_step:
        return jnp.sum(log_prob)
    log_prob = to_layout(log_prob, site)
    return jnp.sum(log_prob.reshape(log_prob.shape[0], -1), axis=1)


def laws_given(program: Callable[[], Any], sites: Mapping[str, Site], values: Values) -> dict[str, dist.Distribution]:
    """The law of every site given the values (step axis first) of all of them."""
    raw = {name: from_layout(jnp.asarray(values[name]), sites[name]) for name in sites}
    trace = trace_program(program, raw)
    return {name: trace[name]["fn"] for name in sites}


def log_probs_given(program: Callable[[], Any], sites: Mapping[str, Site], values: Values) -> dict[str, jax.Array]:
    """Log-probability (nats) of every site's value given what it depends on: `[step]` or a scalar each."""
    laws = laws_given(program, sites, values)
    return {
        name: site_log_prob(laws[name], from_layout(jnp.asarray(values[name]), site), site)
        for name, site in sites.items()
    }
