"""A program's scan as a pure step function.

The program is run until it reaches its scan; the body, its first carry and its inputs are then taken out, still holding
whatever the program drew before (substituted values, traced or not).
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from numpyro import handlers
from numpyro.primitives import Messenger

Step = Callable[[Any, Any, Mapping[str, jax.Array]], tuple[Any, dict[str, dist.Distribution]]]


@dataclasses.dataclass(frozen=True)
class Scan:
    """A scan taken out of its program.

    Attributes:
        first: the first carry (a pytree).
        inputs: the scanned inputs, leading axis the step, or None.
        step: `(carry, input, values of the body's sites) -> (next carry, laws of the body's sites)`.
        before: laws of the sites that the program drew before it.
    """

    first: Any
    inputs: Any
    step: Step
    before: dict[str, dist.Distribution]


class _Reached(Exception):
    def __init__(self, body: Any, first: Any, inputs: Any):
        super().__init__()
        self.body, self.first, self.inputs = body, first, inputs


class _StopAtScan(Messenger):
    def process_message(self, msg: dict[str, Any]) -> None:
        if msg["type"] == "control_flow":
            raise _Reached(*msg["args"][:3])


def _pure(body: Callable[[Any, Any], tuple[Any, Any]]) -> Step:
    def step(carry, given, values):
        values = jax.tree.map(jnp.asarray, dict(values))
        with handlers.block(), handlers.trace() as trace, handlers.substitute(data=values):
            following, _ = body(carry, given)
        laws = {name: site["fn"] for name, site in trace.items() if site["type"] == "sample"}
        # The same types as the first carry, as lax.scan insists.
        return jax.tree.map(lambda new, old: jnp.asarray(new, jnp.asarray(old).dtype), following, carry), laws

    return step


def take_out_scan(program: Callable[[], Any], drawn_before: Mapping[str, jax.Array]) -> Scan:
    """Run the program to its scan, with these values at the sites it draws before.

    Raises:
        LookupError: there is no scan.
    """
    with handlers.trace() as trace:
        try:
            with _StopAtScan():
                # A program may index them by a traced state, which NumPy arrays refuse.
                handlers.substitute(program, data=jax.tree.map(jnp.asarray, dict(drawn_before)))()
        except _Reached as reached:
            before = {name: site["fn"] for name, site in trace.items() if site["type"] == "sample"}
            return Scan(jax.tree.map(jnp.asarray, reached.first), reached.inputs, _pure(reached.body), before)
    raise LookupError("the program has no scan")
