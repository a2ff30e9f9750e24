"""What a program contains, seen by running it once: its sample sites, plates and scans, and what cannot be derived from.

`scan` hides its body from outer handlers, so the body is wrapped and inspected from inside.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import numpyro.distributions as dist
from jax.core import Tracer
from numpyro import handlers
from numpyro.primitives import Messenger

from ppl_tunnels.errors import TunnelError
from ppl_tunnels.oracles.support import one_draw
from ppl_tunnels.program import trace_program


@dataclasses.dataclass
class Inspection:
    """The record of one run.

    Attributes:
        trace: NumPyro's own trace.
        order: sample sites in program order, those of a scan in the order of its body.
        scan_of: site name -> which scan of the program it lies in (0, 1, …).
        deterministic: names of deterministic sites.
        moving: sites whose support holds an abstract number (see `moving_supports`).
    """

    trace: dict[str, dict] = dataclasses.field(default_factory=dict)
    order: list[str] = dataclasses.field(default_factory=list)
    scan_of: dict[str, int] = dataclasses.field(default_factory=dict)
    deterministic: set[str] = dataclasses.field(default_factory=set)
    moving: set[str] = dataclasses.field(default_factory=set)


class _Inspector(Messenger):
    """Notes every message of the program and refuses what has no exact oracle."""

    def __init__(self, record: Inspection, scan: int | None = None):
        super().__init__(None)
        self.record, self.scan, self.scans = record, scan, 0

    def process_message(self, msg: dict[str, Any]) -> None:
        kind, name = msg["type"], msg.get("name")
        if kind == "control_flow":
            self._enter_scan(msg)
        elif kind == "param":
            raise TunnelError(
                f"numpyro.param({name!r}) is a free parameter; a tunnel is fully specified: write the number, make it a "
                "keyword argument of the program, or sample it"
            )
        elif kind == "prng_key":
            raise TunnelError(
                "numpyro.prng_key() draws randomness that no sample site accounts for; draw it with numpyro.sample"
            )
        elif kind == "plate":
            size, subsample = msg["args"]
            if subsample is not None and subsample != size:
                raise TunnelError(
                    f"plate {name!r} draws {subsample} of {size} at random (subsampling); the exact posterior needs all of "
                    "them: drop subsample_size"
                )
        elif kind == "deterministic":
            self.record.deterministic.add(name)

    def _enter_scan(self, msg: dict[str, Any]) -> None:
        if msg["fn"].__name__ != "scan_wrapper":
            raise TunnelError(
                "numpyro's cond() hides sample sites behind a branch; draw the site on both branches and choose the "
                "parameters of its law with jnp.where"
            )
        if self.scan is not None:
            raise TunnelError(
                "a scan inside a scan is not supported by NumPyro; unroll the inner one or use a plate in it"
            )
        body, *rest = msg["args"]
        inner = _Inspector(self.record, self.scans)
        self.scans += 1

        def inspected_body(carry, x):
            with inner:
                return body(carry, x)

        msg["args"] = (inspected_body, *rest)

    def postprocess_message(self, msg: dict[str, Any]) -> None:
        if msg["type"] != "sample":
            return
        name, fn = msg["name"], msg["fn"]
        if isinstance(fn, dist.Unit):
            raise TunnelError(
                f"numpyro.factor({name!r}) makes the program's density unnormalised, so it has no exact predictive; "
                "express the weight as a sample site"
            )
        if msg.get("scale") is not None:
            raise TunnelError(
                f"site {name!r} is under handlers.scale, which is no longer a probability; remove the scale"
            )
        if isinstance(fn, dist.MaskedDistribution):
            raise TunnelError(
                f"site {name!r} is masked (handlers.mask or .mask()); leave the program whole and hide evidence with the "
                "oracle's visible=…"
            )
        if msg.get("is_observed"):
            raise TunnelError(
                f"site {name!r} is observed inside the program (obs=…); leave it free and give your data with "
                "tunnel.episodes(stream={…}, context={…})"
            )
        if self.scan is not None:
            self.record.scan_of[name] = self.scan
        if name not in self.record.order:
            self.record.order.append(name)
        if self.scan is None and name in self.record.scan_of:
            return  # the sites of a scan pass by once more, stacked
        if any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(one_draw(fn).support)):
            self.record.moving.add(name)


def inspect_program(program: Callable[[], Any], key: jax.Array) -> Inspection:
    """Run the program once with random draws and note what it contains."""
    record = Inspection()
    with _Inspector(record):
        record.trace = handlers.trace(handlers.seed(program, key)).get_trace()
    renamed = [name for name in record.scan_of if name not in record.trace]
    if renamed:
        raise TunnelError(
            f"site {renamed[0]!r} is renamed by a handler around its scan (handlers.scope), so it has one name inside and another "
            "outside; put the handler inside the scan's body"
        )
    return record


def moving_supports(program: Callable[[], Any], key: jax.Array) -> set[str]:
    """Sites whose support depends on a value drawn elsewhere, such as `Binomial(n, p)` with a sampled n.

    The program is run on abstract values and constants are evaluated (call it under `compile_time`): what is then still
    abstract depends on a drawn value. A few runs with random draws could agree by chance, and hypotheses would be lost.
    """
    record = Inspection()

    def run(key):
        with _Inspector(record):
            trace_program(program, {}, key)

    jax.eval_shape(run, key)
    return record.moving
