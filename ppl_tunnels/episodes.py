"""Episodes: draws of a tunnel's program, with the step axis in one place.

Every leaf of `stream`, and of a latent drawn at every step, is `[episode, step, *event]`; context and static latents are
`[episode, *event]`. Values beyond one per step (plates other than the step's) come before the event axes.
"""

import dataclasses

import jax
import numpy as np


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Episodes:
    """A batch of episodes, as a JAX pytree.

    Attributes:
        stream: site name to values revealed step by step, `[episode, step, *event]`.
        context: site name to values revealed up front, `[episode, *event]`.
        latent: site name to hidden values; predictors never see them.

    Example:
        >>> import numpy as np
        >>> flips = Episodes(stream={"flip": np.array([[0, 1, 1], [1, 1, 1]])})
        >>> len(flips), len(flips[:1])
        (2, 1)
    """

    stream: dict[str, jax.Array]
    context: dict[str, jax.Array] = dataclasses.field(default_factory=dict)
    latent: dict[str, jax.Array] = dataclasses.field(default_factory=dict)

    def __len__(self) -> int:
        return jax.tree.leaves((self.stream, self.context))[0].shape[0]

    def __getitem__(self, index: "slice | np.ndarray") -> "Episodes":
        """The chosen episodes; an integer would drop the episode axis and is refused."""
        if isinstance(index, int | np.integer):
            raise TypeError(f"episodes[{index}] would drop the episode axis; write episodes[{index}:{index + 1}]")
        return jax.tree.map(lambda leaf: leaf[index], self)

    def without_latents(self) -> "Episodes":
        """What a predictor may see."""
        return dataclasses.replace(self, latent={})

    def to_numpy(self) -> "Episodes":
        """The same episodes as NumPy arrays."""
        return jax.tree.map(np.asarray, self)
