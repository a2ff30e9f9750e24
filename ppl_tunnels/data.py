"""A person's own data, checked against a tunnel's sites before anything conditions on it."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.distributions import constraints

from ppl_tunnels.errors import TunnelError, suggest

if TYPE_CHECKING:
    from ppl_tunnels.program import Site
    from ppl_tunnels.tunnel import WindTunnel


def checked_values(tunnel: "WindTunnel", role: str, given: Mapping[str, Any]) -> dict[str, jax.Array]:
    """The values of every site of one role, as arrays of the site's own type.

    Raises:
        TunnelError: a site is missing or unknown, a shape or a value does not fit; names the first place.
    """
    reading = tunnel.reading
    names = reading.named(role)
    for name in given:
        if name not in names:
            raise TunnelError(f"{role} of tunnel {tunnel.name!r} has no site {name!r}; {suggest(name, names)}")
    missing = [name for name in names if name not in given]
    if missing:
        raise TunnelError(
            f"{role} site {missing[0]!r} of tunnel {tunnel.name!r} is missing; give values for {', '.join(names)}"
        )
    return {name: jnp.asarray(_fitting(reading.sites[name], given[name])) for name in names}


def _fitting(site: "Site", given: Any) -> np.ndarray:
    try:
        values = np.asarray(given)
    except ValueError as error:
        raise TunnelError(
            f"site {site.name!r} was given lists of unequal lengths; expected an array ({error})"
        ) from error
    axes = ("episode", "step") if site.per_step else ("episode",)
    if values.ndim < 1 or values.shape[1:] != site.layout:
        expected = ("n", *map(str, site.layout))
        raise TunnelError(
            f"site {site.name!r} was given shape {values.shape}; expected ({', '.join(expected)}): axes "
            f"[{', '.join(axes)}{', …' if len(site.layout) + 1 > len(axes) else ''}]"
        )
    if values.dtype.kind not in "biuf":
        raise TunnelError(f"site {site.name!r} was given values of type {values.dtype}; expected numbers")
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        place = tuple(int(i) for i in np.argwhere(~np.isfinite(values))[0])
        raise TunnelError(
            f"site {site.name!r} is {values[place]} at {place} [{', '.join(axes)}]; expected finite numbers"
        )
    whole = np.issubdtype(site.dtype, np.integer) or site.dtype == bool
    if whole and values.dtype.kind == "f" and not np.equal(values, np.round(values)).all():
        place = tuple(int(i) for i in np.argwhere(values != np.round(values))[0])
        raise TunnelError(
            f"site {site.name!r} is {values[place]} at {place} [{', '.join(axes)}]; expected whole numbers"
        )
    values = values.astype(site.dtype)
    if site.support is not None:
        lead = values.shape[: values.ndim - site.event_dim]
        flat = values.reshape(-1, *site.event_shape)
        known = {row.tobytes() for row in np.ascontiguousarray(site.support.astype(site.dtype))}
        inside = np.array([row.tobytes() in known for row in np.ascontiguousarray(flat)], dtype=bool)
        expected = f"one of the {len(known)} values of its support"
        if site.event_dim == 0:
            expected += f", {site.support.min()} to {site.support.max()}"
    elif constraints.is_dependent(site.constraint):  # whether the value is possible is for the oracle to say
        return values
    else:
        lead = values.shape[: values.ndim - site.event_dim]
        inside = np.broadcast_to(np.asarray(site.constraint(jnp.asarray(values))), lead).ravel()
        expected = f"a value of its support ({site.constraint})"
    if not inside.all():
        place = tuple(int(i) for i in np.unravel_index(int(np.argmin(inside)), lead))
        where = ", ".join(f"{axis} {index}" for axis, index in zip(axes, place, strict=False))
        raise TunnelError(f"site {site.name!r} is {values[place]} at {where}; expected {expected}")
    return values
