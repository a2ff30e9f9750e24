"""Stream sites whose laws no continuous latent enters: their laws are the program's own, given the finite latents."""

from typing import Any

import jax
import jax.numpy as jnp
import numpyro.distributions as dist

from ppl_tunnels.oracles.conjugacy import ConjugatePart
from ppl_tunnels.oracles.part import Run, Values
from ppl_tunnels.oracles.program_laws import broadcast_law


class PlainPart(ConjugatePart):
    """Conjugate updating of no latent, with the program's own law where a site is not finite."""

    name = "plain"

    def predictive(self, values: Values, site: str, visible: jax.Array | None) -> Run:
        """The program's own law at every step."""
        if self.sites[site].support is not None:
            return super().predictive(values, site, visible)
        others = {name: jnp.asarray(value[0]) for name, value in self.others.items()}
        law = jax.tree.map(lambda leaf: leaf[0], self.terms_of.run({**values, **others}).laws[site])
        return Run(self.evidence(values, visible, site), broadcast_law(law, self.sites[site]))

    def law(self, site: str, parameters: Any, impossible: jax.Array) -> dist.Distribution:
        """The program's own."""
        return parameters

    def why_no_predictive(self, site: str) -> str | None:
        """Several values at a step make no one law."""
        if self.sites[site].support is None and self.sites[site].batch_shape[1:]:
            return f"stream site {site!r} has several values at each step"
        return None
