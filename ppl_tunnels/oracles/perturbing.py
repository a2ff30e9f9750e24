"""Other values for sites, to see what depends on them."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from ppl_tunnels.program import Site


def other_values(values: np.ndarray, site: "Site") -> np.ndarray:
    """Another value for each: the next of a finite support (another draw might well be the same), or another draw.

    Args:
        values: `[draw, ..., *event]`.
        site: whose values.
    """
    if site.support is None:
        return np.roll(values, 1, axis=0)
    matches = np.expand_dims(values, values.ndim - site.event_dim) == site.support
    index = matches.all(axis=tuple(range(-site.event_dim, 0))).argmax(axis=-1)
    return site.support[(index + 1) % len(site.support)].astype(values.dtype)


def any_values(sites: "Mapping[str, Site]", draws: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The same draws with any value of its support at every finite site, likely or not; `[draw, ...]` a site."""
    generator, anywhere = np.random.default_rng(0), dict(draws)
    for name, values in draws.items():
        site = sites[name]
        if site.support is not None:
            index = generator.integers(len(site.support), size=(len(values), *site.batch_shape))
            anywhere[name] = site.support[index].astype(values.dtype)
    return anywhere
