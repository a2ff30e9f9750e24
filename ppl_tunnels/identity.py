"""What a program is, as a hash: its source, and the values and functions it refers to."""

import functools
import hashlib
import inspect
import types
from collections.abc import Callable
from typing import Any

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
    if id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, functools.partial):
        yield repr((value.args, sorted(value.keywords.items())))
        yield from _describe(value.func, home, seen)
    elif isinstance(value, types.FunctionType):
        if value.__module__ != home:
            yield f"{value.__module__}:{value.__qualname__}"
            return
        try:
            yield inspect.getsource(value)
        except (OSError, TypeError):
            yield value.__code__.co_code.hex() + repr(value.__code__.co_consts)
        captured = inspect.getclosurevars(value)
        for name, item in sorted({**captured.globals, **captured.nonlocals}.items()):
            yield name
            yield from _describe(item, home, seen)
    elif isinstance(value, types.ModuleType):
        yield value.__name__
    elif hasattr(value, "__array__"):
        array = np.asarray(value)
        yield f"{array.dtype}{array.shape}{hashlib.sha256(array.tobytes()).hexdigest()}"
    elif isinstance(value, type):
        yield f"{value.__module__}:{value.__qualname__}"
    else:
        yield (
            repr(value)
            if isinstance(value, str | int | float | bool | tuple | list | dict | None)
            else type(value).__name__
        )
