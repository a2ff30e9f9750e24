"""Single precision hidden in a program: refused, because it spoils an oracle silently.

An array made outside the program in single precision stays so when the program is traced in double precision, 3e-8 off
without a warning.
"""

from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp

from ppl_tunnels.errors import TunnelError
from ppl_tunnels.program import double_precision, log_probs_given

if TYPE_CHECKING:
    from ppl_tunnels.tunnel import WindTunnel

_NARROW = (jnp.float32, jnp.bfloat16, jnp.float16, jnp.complex64)


def check_double_precision(tunnel: "WindTunnel") -> None:
    """Raise if the program's densities, traced in double precision, use anything narrower.

    Not to be called under `compile_time`, which folds a captured constant into a wide one before it can be seen.

    Raises:
        TunnelError: shows the narrow array's type and what to do.
    """
    sites = tunnel.reading.sites
    values = {name: jax.ShapeDtypeStruct(site.layout, site.dtype) for name, site in sites.items()}
    for name, site in sites.items():
        if site.dtype in _NARROW:
            raise _refusal(tunnel, f"site {name!r} has type {site.dtype}")
    with double_precision():
        traced = jax.make_jaxpr(lambda given: log_probs_given(tunnel.configured_program, sites, given))(values)
    for aval in _avals(traced.jaxpr):
        dtype = getattr(aval, "dtype", None)
        if dtype in _NARROW:
            raise _refusal(tunnel, f"it uses an array of type {dtype} and shape {getattr(aval, 'shape', ())}")


def _refusal(tunnel: "WindTunnel", what: str) -> TunnelError:
    return TunnelError(
        f"program {tunnel.name!r} holds single-precision numbers: {what}. Oracles are exact in double precision only, and an "
        "array captured from outside keeps the precision it was made in: create it inside the program, without a dtype"
    )


def _avals(jaxpr):
    for variable in (*jaxpr.constvars, *jaxpr.invars):
        yield variable.aval
    for equation in jaxpr.eqns:
        for variable in (*equation.invars, *equation.outvars):
            yield variable.aval
        for parameter in jax.tree.leaves(equation.params, is_leaf=lambda p: hasattr(p, "eqns") or hasattr(p, "jaxpr")):
            inner = getattr(parameter, "jaxpr", parameter)
            if hasattr(inner, "eqns"):
                yield from _avals(inner)
