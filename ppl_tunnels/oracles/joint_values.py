"""Every joint value of a few finite sites, listed."""

import itertools
import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np

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


def first_fastest(site: "Site", batch: tuple[int, ...]) -> np.ndarray:
    """Joint values of a site's draws in the order of laws, the first draw running fastest: `[value, *batch, *event]`."""
    values, index = joint_values({site.name: site}, lambda _: batch)
    return values[site.name][np.argsort(index[site.name], kind="stable")]
