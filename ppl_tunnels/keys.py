"""Key streams that never meet: one root per purpose, so that a model is never judged on an episode drawn to train it.

Each purpose folds its own tag into the root key before anything else is folded in: two purposes share an episode only if
two 64-bit threefry keys collide.
"""

import enum

import jax


class Purpose(enum.IntEnum):
    """What a key is for; the numbers are part of every certificate's reproducibility and never change."""

    TRAINING = 1
    SELECTION = 2
    CERTIFICATION = 3
    CHECK = 4
    SHOW = 5
    INITIALISATION = 6


def stream_key(seed: int, purpose: Purpose) -> jax.Array:
    """The typed JAX key of one purpose.

    Args:
        seed: any integer from 0 to 2**63 - 1.
        purpose: which stream.

    Example:
        >>> import jax
        >>> a, b = (stream_key(0, purpose) for purpose in (Purpose.TRAINING, Purpose.CERTIFICATION))
        >>> bool((jax.random.key_data(a) == jax.random.key_data(b)).all())
        False
    """
    if not 0 <= seed < 2**63:
        raise ValueError(f"seed is {seed}; expected an integer from 0 to 2**63 - 1")
    # The seed is folded in as two 32-bit halves: `jax.random.key` drops the upper one when x64 is off.
    key = jax.random.fold_in(jax.random.key(0), int(purpose))
    return jax.random.fold_in(jax.random.fold_in(key, seed >> 32), seed & 0xFFFFFFFF)
