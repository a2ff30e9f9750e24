"""Which inputs of a function each of its outputs depends on, read off its jaxpr.

A conservative answer: an output is said to depend on an input when a chain of operations leads from one to the other,
whether or not the numbers can show it. Inner functions (`jit`, `scan`, `cond`, …) are followed where their inputs and
outputs correspond one to one, and otherwise every output is taken to depend on every input.
"""

from collections.abc import Callable
from typing import Any

import jax

Dependence = list[frozenset[int]]


def dependence(function: Callable[..., Any], *arguments: Any) -> Dependence:
    """For each output leaf of `function(*arguments)`, the indices of the argument leaves that it depends on.

    Args:
        function: traceable.
        arguments: arrays or their shapes and types, any pytrees.

    Example:
        >>> dependence(lambda a, b: (a + 1, a * b, 3.0), 1.0, 2.0)
        [frozenset({0}), frozenset({0, 1}), frozenset()]
    """
    closed = jax.make_jaxpr(function)(*arguments)
    own = [frozenset({index}) for index in range(len(closed.jaxpr.invars))]
    return _flow(closed.jaxpr, own)


def _flow(jaxpr: Any, inputs: Dependence) -> Dependence:
    known: dict[Any, frozenset[int]] = dict(zip(jaxpr.invars, inputs, strict=True))

    def of(atom: Any) -> frozenset[int]:
        return known.get(atom, frozenset()) if _is_variable(atom) else frozenset()

    for equation in jaxpr.eqns:
        into = [of(atom) for atom in equation.invars]
        inner = equation.params.get("jaxpr")
        inner = getattr(inner, "jaxpr", inner)
        if equation.primitive.name in _CALLS and inner is not None and len(inner.invars) == len(into):
            out = _flow(inner, into)
        else:
            out = [frozenset().union(*into)] * len(equation.outvars)
        known.update(zip(equation.outvars, out, strict=True))
    return [of(atom) for atom in jaxpr.outvars]


# Primitives that call their jaxpr once, inputs to inputs and outputs to outputs.
_CALLS = frozenset({"jit", "pjit", "closed_call", "core_call", "remat", "checkpoint"})


def _is_variable(atom: Any) -> bool:
    return not hasattr(atom, "val")
