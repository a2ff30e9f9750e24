"""What a program is, as a hash: its source, and the values and functions it refers to."""

import dis
import functools
import hashlib
import inspect
import types
from collections.abc import Callable
from typing import Any

import jax
import numpy as np


def program_fingerprint(program: Callable[..., Any], extra: str) -> str:
    """Hex SHA-256 of a function's source text, of what it closes over or refers to, and of `extra`.

    Functions of the same module that the program calls are followed; imported libraries are not (certificates record
    their versions).
    """
    digest = hashlib.sha256()
    for part in _describe(program, program.__module__, set()):
        digest.update(part.encode())
        digest.update(b"\0")
    digest.update(extra.encode())
    return digest.hexdigest()


def _describe(value: Any, home: str, seen: set[int]):
    if value is None or isinstance(value, str | int | float | complex | bytes):
        yield f"{type(value).__name__} {value!r}"
    elif hasattr(value, "__array__"):
        array = np.asarray(value)
        yield f"{array.dtype}{array.shape}{hashlib.sha256(array.tobytes()).hexdigest()}"
    elif isinstance(value, types.ModuleType):
        yield value.__name__
    elif isinstance(value, type):
        yield f"{value.__module__}:{value.__qualname__}"
    elif id(value) in seen:  # a function that calls itself, or a container that holds itself
        return
    elif isinstance(value, types.FunctionType):
        seen.add(id(value))
        yield from _describe_function(value, home, seen)
    elif isinstance(value, functools.partial):
        seen.add(id(value))
        yield from _describe([value.args, value.keywords, value.func], home, seen)
    elif isinstance(value, dict):
        seen.add(id(value))
        for key in sorted(value, key=repr):
            yield from _describe((key, value[key]), home, seen)
    elif isinstance(value, list | tuple):
        yield f"{type(value).__name__} of {len(value)}"
        for item in value:
            yield from _describe(item, home, seen)
    elif isinstance(value, set | frozenset):
        yield from _describe(sorted(value, key=repr), home, seen)
    else:  # laws and other JAX containers by what they hold, anything else by its type alone
        leaves = jax.tree.leaves(value)
        yield type(value).__qualname__
        if not any(leaf is value for leaf in leaves):
            yield from _describe(leaves, home, seen)


def _describe_function(function: types.FunctionType, home: str, seen: set[int]):
    if function.__module__ != home:
        yield f"{function.__module__}:{function.__qualname__}"
        return
    try:
        yield inspect.getsource(function)
    except (OSError, TypeError):
        yield function.__code__.co_code.hex() + repr(function.__code__.co_consts)
    names, codes = set(), [function.__code__]
    while codes:  # the globals of functions defined inside it, too: a scan's body is one
        code = codes.pop()
        names.update(step.argval for step in dis.get_instructions(code) if step.opname == "LOAD_GLOBAL")
        codes.extend(constant for constant in code.co_consts if isinstance(constant, types.CodeType))
    captured = {name: function.__globals__[name] for name in names if name in function.__globals__}
    captured.update(inspect.getclosurevars(function).nonlocals)
    for name, item in sorted(captured.items()):
        yield name
        yield from _describe(item, home, seen)
