"""What a training run is told: every number that decides the weights, in one frozen record."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, Literal, get_args

from ppl_tunnels.errors import suggest
from ppl_tunnels.models.architectures import architecture

Optimizer = Literal["muon", "adamw"]
Targets = Literal["oracle", "sampled"]

# Peak rates that did best on the 20-symbol bijection in 2,500 steps; regression and hidden Markov models prefer half.
DEFAULT_LEARNING_RATES: dict[str, float] = {"muon": 0.02, "adamw": 0.01}

_ENCODING = ["layout", "start", "shared", "features"]


@dataclasses.dataclass(frozen=True)
class FitConfig:
    """A training run; two runs with equal configurations end in bit-identical weights on one machine.

    Example:
        >>> FitConfig(optimizer="adamw").peak_learning_rate
        0.01
    """

    architecture: str = "transformer"  # a name in ppl_tunnels.models.architectures
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict, hash=False)  # changes to its `small` preset
    encoding: Mapping[str, Any] = dataclasses.field(default_factory=dict, hash=False)  # arguments of tunnel.encoding
    steps: int = 2500  # optimiser steps
    batch: int = 64  # fresh episodes per step
    optimizer: Optimizer = "muon"  # of the matrices; tables and gains always take AdamW
    learning_rate: float | None = None  # at the peak of the schedule; None: 0.02 for muon, 0.01 for adamw
    warmup: float = 0.04  # share of the steps over which the rate rises linearly (the published 2,000 of 50,000)
    clip: float = 1.0  # largest global norm of a gradient (in nats)
    weight_decay: float = 0.0  # of the matrices, times the learning rate
    targets: Targets = "oracle"  # "oracle": the exact law (distillation); "sampled": the value that was drawn
    seed: int = 0  # of the weights and of the training episodes; certification draws from another stream
    steps_per_call: int = 50  # steps in one call to the device, and in one row of metrics

    def __post_init__(self) -> None:
        architecture(self.architecture)
        object.__setattr__(self, "options", dict(self.options))
        object.__setattr__(self, "encoding", dict(self.encoding))
        for given in self.encoding:
            if given not in _ENCODING:
                raise ValueError(
                    f"encoding holds {given!r}, which tunnel.encoding does not take; {suggest(given, _ENCODING)}"
                )
        for field, known in (("optimizer", get_args(Optimizer)), ("targets", get_args(Targets))):
            if getattr(self, field) not in known:
                raise ValueError(f"{field} is {getattr(self, field)!r}; expected one of {', '.join(known)}")
        for field in ("steps", "batch", "steps_per_call"):
            value = getattr(self, field)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ValueError(f"{field} is {value!r}; expected an integer of at least 1")
        if not isinstance(self.seed, int) or not 0 <= self.seed < 2**63:
            raise ValueError(f"seed is {self.seed!r}; expected an integer from 0 to 2**63 - 1")
        if not 0 <= self.warmup < 1:
            raise ValueError(f"warmup is {self.warmup!r}; expected a share of the steps, from 0 to below 1")
        for field, value in (("learning_rate", self.peak_learning_rate), ("clip", self.clip)):
            if not (math.isfinite(value) and value > 0):
                raise ValueError(f"{field} is {value!r}; expected a positive number")
        if not (math.isfinite(self.weight_decay) and self.weight_decay >= 0):
            raise ValueError(f"weight_decay is {self.weight_decay!r}; expected zero or a positive number")

    @property
    def peak_learning_rate(self) -> float:
        """The learning rate at the end of the warm-up."""
        return DEFAULT_LEARNING_RATES[self.optimizer] if self.learning_rate is None else self.learning_rate

    def facts(self) -> dict[str, Any]:
        """The configuration as plain data, for checkpoints and certificates."""
        return {**dataclasses.asdict(self), "learning_rate": self.peak_learning_rate}
