"""Reading a program: the role of each site, and which axis is the step.

Stream sites inside `scan` give the scan's axis; otherwise their single common plate does (or the plate that `step`
names); with neither, the episode has one step.
"""

import dataclasses
import re
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np
import numpyro.distributions as dist
from numpyro.distributions import constraints

from ppl_tunnels.errors import TunnelError, suggest
from ppl_tunnels.inspection import Inspection, inspect_program, moving_supports
from ppl_tunnels.oracles.support import listed_support, one_draw
from ppl_tunnels.program import Site, compile_time

# Independent runs, whose sites and supports are compared, for what an abstract run cannot see (Python's own randomness).
_READINGS = 2


@dataclasses.dataclass(frozen=True)
class Reading:
    """A program read.

    Attributes:
        program: takes no argument; its configuration is bound.
        sites: every sample site by name, in program order.
        steps: the length of the step axis.
        axis: the step axis in words.
    """

    program: Callable[[], Any]
    sites: Mapping[str, Site]
    steps: int
    axis: str

    def named(self, role: str, *, per_step: bool | None = None) -> tuple[str, ...]:
        """Names of the sites with this role, in program order."""
        return tuple(
            name
            for name, site in self.sites.items()
            if site.role == role and (per_step is None or site.per_step == per_step)
        )


def read_program(
    program: Callable[[], Any], *, stream: tuple[str, ...], context: tuple[str, ...], step: str | None
) -> Reading:
    """Read the program by running it a few times.

    Raises:
        TunnelError: a role names no site, there is no single step axis, or the program holds what no engine can use.
    """
    # Supports are listed with concrete values too: the first use of a tunnel may be inside somebody's jit.
    with compile_time():
        return _read(program, stream, context, step)


def _read(program: Callable[[], Any], stream: tuple[str, ...], context: tuple[str, ...], step: str | None) -> Reading:
    try:
        runs = [inspect_program(program, jax.random.key(seed)) for seed in range(_READINGS)]
    except AssertionError as error:  # how NumPyro refuses a plate of size 0
        raise TunnelError(f"the program cannot be run: {error}; check its configuration") from error
    first = runs[0]
    if any(run.order != first.order for run in runs):
        raise TunnelError(
            "the program's sample sites differ from run to run; use the same sites always and choose their laws with jnp.where"
        )
    moving = moving_supports(program, jax.random.key(0))
    roles = _roles(first, stream, context)
    axis, step_frame, scan, steps = _step_axis(first, stream, step)
    if steps < 1:
        raise TunnelError(f"{axis} has no step, so there is nothing to predict; configure at least one")
    sites = {}
    for name in first.order:
        trace = first.trace[name]
        fn, shape = trace["fn"], np.shape(trace["value"])
        event_dim = fn.event_dim
        frame = next((f for f in trace["cond_indep_stack"] if f.name == step_frame), None)
        if scan is not None:
            per_step, step_axis = first.scan_of.get(name) == scan, 0
        elif frame is not None:
            per_step, step_axis = True, len(shape) - event_dim + frame.dim
        else:
            per_step, step_axis = axis == "none" and roles[name] == "stream", None
        support, size = (None, None) if name in moving else _fixed_support(name, runs)
        sites[name] = Site(
            name=name,
            role=roles[name],
            per_step=per_step,
            step_axis=step_axis if per_step else None,
            shape=shape,
            event_dim=event_dim,
            dtype=np.asarray(trace["value"]).dtype,
            support=support,
            support_size=size,
            constraint=constraints.dependent if name in moving else fn.support,
            elements=_elements(fn),
        )
        if isinstance(one_draw(fn), dist.Delta):
            raise TunnelError(
                f"site {name!r} is a Delta, which has no probability to update; use "
                "dist.Categorical(jax.nn.one_hot(value, size)) for a discrete value, or compute it without numpyro.sample"
            )
        if roles[name] != "context" and not getattr(one_draw(fn), "normalised", True):
            raise TunnelError(
                f"{roles[name]} site {name!r} is a {type(one_draw(fn)).__name__}, whose probabilities are not known, so nothing can be "
                "weighed by them; reveal it up front (context=), or give it a law with a log_prob"
            )
        if roles[name] == "stream":
            _refuse_unplated_batch(name, trace, scan is not None)
    for name in stream:
        if not sites[name].per_step:
            raise TunnelError(
                f"stream site {name!r} is not drawn at every step of {axis}, unlike the other stream sites"
            )
    return Reading(program=program, sites=sites, steps=steps, axis=axis)


def _roles(run: Inspection, stream: tuple[str, ...], context: tuple[str, ...]) -> dict[str, str]:
    for role, names in (("stream", stream), ("context", context)):
        for name in names:
            if name in run.deterministic:
                raise TunnelError(
                    f"{role} site {name!r} is deterministic; only values drawn with numpyro.sample are evidence: use "
                    "dist.Categorical(jax.nn.one_hot(value, size)) at a sample site"
                )
            if name not in run.order:
                loop = [site for site in run.order if re.fullmatch(re.escape(name) + r"_?\d+", site)]
                if loop:
                    raise TunnelError(
                        f"{role}={name!r} names no site, but the program draws {', '.join(loop[:3])}, … in a Python loop; "
                        "write the loop as numpyro.contrib.control_flow.scan or, if the draws are independent, as a plate"
                    )
                raise TunnelError(f"{role}={name!r} names no sample site of the program; {suggest(name, run.order)}")
    both = set(stream) & set(context)
    if both:
        raise TunnelError(f"site {both.pop()!r} is both stream and context; give it one role")
    return {name: "stream" if name in stream else "context" if name in context else "latent" for name in run.order}


def _step_axis(run: Inspection, stream: tuple[str, ...], step: str | None) -> tuple[str, str | None, int | None, int]:
    """(axis in words, plate name, scan number, steps)."""
    scans = {run.scan_of.get(name) for name in stream}
    if scans != {None}:
        if len(scans) > 1:
            raise TunnelError(
                f"stream sites {', '.join(stream)} do not all lie in one scan; draw them in the same scan body, or give the "
                "ones revealed up front as context"
            )
        if step is not None:
            raise TunnelError(
                f"step={step!r} names a plate, but the stream sites lie in a scan, whose axis is the step"
            )
        return "the scan", None, scans.pop(), int(np.shape(run.trace[stream[0]]["value"])[0])
    frames = [{f.name: f for f in run.trace[name]["cond_indep_stack"]} for name in stream]
    common = [name for name in frames[0] if all(name in others for others in frames)]
    if step is not None:
        if step not in common:
            known = sorted({name for frame in frames for name in frame})
            raise TunnelError(f"step={step!r} is not a plate around every stream site; {suggest(step, known)}")
        common = [step]
    if len(common) > 1:
        raise TunnelError(
            f"plates {', '.join(map(repr, common))} all contain the stream sites, so the step axis is ambiguous; name it "
            f"with step={common[0]!r}"
        )
    if common:
        return f"plate {common[0]!r}", common[0], None, int(frames[0][common[0]].size)
    if any(frames):
        raise TunnelError(
            f"stream sites {', '.join(stream)} share no plate, so there is no common step axis; draw them in one plate or scan"
        )
    stems = {re.sub(r"_?\d+$", "", name) for name in stream}
    if len(stream) > 1 and len(stems) < len(stream) and all(re.search(r"\d$", name) for name in stream):
        raise TunnelError(
            f"stream sites {', '.join(stream)} look like the rounds of a Python loop; write the loop as "
            "numpyro.contrib.control_flow.scan or, if the draws are independent, as a plate"
        )
    for name in stream:
        if isinstance(run.trace[name]["fn"], dist.Independent):
            raise TunnelError(
                f"stream site {name!r} is a vector made with to_event, so its elements are not steps; draw them in a "
                "numpyro.plate (or scan), or, if one vector is one step, in numpyro.plate('step', 1)"
            )
    return "none", None, None, 1


def _refuse_unplated_batch(name: str, trace: dict, scanned: bool) -> None:
    batch = list(trace["fn"].batch_shape)
    if scanned:
        batch = batch[1:]
    for frame in trace["cond_indep_stack"]:
        if -frame.dim <= len(batch):
            batch[frame.dim] = 1
    if any(size != 1 for size in batch):
        raise TunnelError(
            f"stream site {name!r} draws a batch of shape {tuple(trace['fn'].batch_shape)} outside any plate, so it is not clear which "
            "axis is the step; put it in a numpyro.plate, or make it one event with .to_event(1) inside a plate or scan"
        )


def _fixed_support(name: str, runs: list[Inspection]) -> tuple[np.ndarray | None, int | None]:
    supports = [listed_support(run.trace[name]["fn"]) for run in runs]
    values, size = supports[0]
    same = all(
        other_size == size and (values is None) == (other is None) and (values is None or np.array_equal(values, other))
        for other, other_size in supports[1:]
    )
    return (values, size) if same else (None, None)


def _elements(fn: dist.Distribution) -> np.ndarray | None:
    elements = getattr(one_draw(fn), "element_support", None)
    return None if elements is None else np.asarray(elements)
