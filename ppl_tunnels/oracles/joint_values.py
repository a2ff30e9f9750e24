"""Every joint value of a few finite sites, listed."""

import itertools
import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from ppl_tunnels.errors import TunnelError
from ppl_tunnels.oracles.support import MOST_LISTED_VALUES

if TYPE_CHECKING:
    from ppl_tunnels.program import Site


def joint_values(
    sites: "Mapping[str, Site]", shape_of: "Callable[[Site], tuple[int, ...]]"
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Every joint value of some finite sites, and for each site the index of its own joint value.

    Args:
        sites: finite sites.
        shape_of: `site -> batch shape` of the draws that belong together.

    Returns:
        `[value, *batch, *event]` a site, and `[value]` a site; the first draw of a site runs fastest in its index.
    """
    radix = [len(site.support) for site in sites.values() for _ in range(math.prod(shape_of(site)))]
    combinations = list(itertools.product(*(range(size) for size in radix)))
    flat = np.array(combinations, dtype=int).reshape(len(combinations), len(radix))
    values, index, at = {}, {}, 0
    for name, site in sites.items():
        shape = shape_of(site)
        count = math.prod(shape)
        own = flat[:, at : at + count]
        at += count
        values[name] = site.support[own].reshape(len(flat), *shape, *site.event_shape)
        index[name] = own @ (len(site.support) ** np.arange(count)) if count else np.zeros(len(flat), int)
    return values, index


def step_batch(site: "Site") -> tuple[int, ...]:
    """Batch shape of one step's draws."""
    return site.batch_shape[1:]


def draws_at_once(site: "Site") -> tuple[int, ...]:
    """Batch shape of what one law of a site spans: the draws of one step, or all of a site drawn once."""
    return step_batch(site) if site.per_step else site.batch_shape


def first_fastest_order(site: "Site") -> np.ndarray:
    """Places of a site's joint values (see `joint_values`) in the order of laws, where the first draw runs fastest."""
    _, index = joint_values({site.name: site}, draws_at_once)
    return np.argsort(index[site.name], kind="stable")


def can_be_listed(site: "Site") -> bool:
    """Whether one law of the site has finitely, and not too, many values."""
    return site.support is not None and len(site.support) ** math.prod(draws_at_once(site)) <= MOST_LISTED_VALUES


def listed_joint_values(site: "Site") -> np.ndarray:
    """The values of one law of a finite site, `[value, *batch, *event]`: joint values of its draws, the first running fastest.

    Raises:
        TunnelError: too many to list.
    """
    if not can_be_listed(site):
        count = len(site.support) ** math.prod(draws_at_once(site))
        raise TunnelError(
            f"the law of {site.name!r} has {count:,} values, the joint ones of its {math.prod(draws_at_once(site))} draws; at most "
            f"{MOST_LISTED_VALUES:,} are listed: use a smaller configuration"
        )
    values, _ = joint_values({site.name: site}, draws_at_once)
    return values[site.name][first_fastest_order(site)]
