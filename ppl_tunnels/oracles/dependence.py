"""Which inputs of a function each of its outputs depends on, read off its jaxpr.

A conservative answer: an output is said to depend on an input when a chain of operations leads from one to the other,
whether or not the numbers can show it. Inner functions are followed into: of a `cond` every branch, and `scan` and `while`
until their carries depend on nothing new. What is not known to have an inner function is one operation, whose outputs all
depend on all of its inputs.
"""

from collections.abc import Callable
from typing import Any

import jax

Dependence = list[frozenset[int]]
_NOTHING: frozenset[int] = frozenset()


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
        return known.get(atom, _NOTHING) if _is_variable(atom) else _NOTHING

    for equation in jaxpr.eqns:
        into = [of(atom) for atom in equation.invars]
        follow = _FOLLOWED.get(equation.primitive.name, _call)
        out = follow(equation.params, into)
        if out is None or len(out) != len(equation.outvars):
            out = [_NOTHING.union(*into)] * len(equation.outvars)
        known.update(zip(equation.outvars, out, strict=True))
    return [of(atom) for atom in jaxpr.outvars]


def _is_variable(atom: Any) -> bool:
    return not hasattr(atom, "val")


def _opened(inner: Any) -> Any:
    return getattr(inner, "jaxpr", inner)


def _call(params: dict[str, Any], into: Dependence) -> Dependence | None:
    """A call of one inner function, inputs to inputs and outputs to outputs; None for an operation without one."""
    inner = next((_opened(params[key]) for key in ("jaxpr", "call_jaxpr", "fun_jaxpr") if key in params), None)
    if inner is None or len(getattr(inner, "invars", ())) != len(into):
        return None
    return _flow(inner, into)


def _cond(params: dict[str, Any], into: Dependence) -> Dependence:
    which, *rest = into
    branches = [_flow(_opened(branch), rest) for branch in params["branches"]]
    return [which.union(*outs) for outs in zip(*branches, strict=True)]


def _scan(params: dict[str, Any], into: Dependence) -> Dependence:
    if "num_consts" in params:  # JAX before 0.12
        constants, carried = params["num_consts"], params["num_carry"]
    else:
        # JAX says which of the inputs are which by filling them in.
        constants, carried, _ = (len(list(part)) for part in params["ft_in"].update(into).unpack())
    fixed, carry, rows = into[:constants], into[constants : constants + carried], into[constants + carried :]
    body = _opened(params["jaxpr"])
    while True:
        out = _flow(body, [*fixed, *carry, *rows])
        more = [before | after for before, after in zip(carry, out[:carried], strict=True)]
        if more == carry:
            return [*carry, *out[carried:]]
        carry = more


def _while(params: dict[str, Any], into: Dependence) -> Dependence:
    tested, fixed = params["cond_nconsts"], params["body_nconsts"]
    of_test, of_body, carry = into[:tested], into[tested : tested + fixed], into[tested + fixed :]
    test, body = _opened(params["cond_jaxpr"]), _opened(params["body_jaxpr"])
    while True:
        # How often the body runs is decided by the test.
        (often,) = _flow(test, [*of_test, *carry])
        out = _flow(body, [*of_body, *carry])
        more = [before | after | often for before, after in zip(carry, out, strict=True)]
        if more == carry:
            return carry
        carry = more


_FOLLOWED: dict[str, Callable[[dict[str, Any], Dependence], Dependence | None]] = {
    "cond": _cond,
    "scan": _scan,
    "while": _while,
}
