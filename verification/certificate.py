"""The certificate: a record of what was claimed, found and decided, with everything needed to recompute it.

It is plain data. The JSON file holds no NaN and no infinity (an unbounded number is null), and ends with a hash of its own
content, so that a truncated or edited file is refused with the reason.
"""

import dataclasses
import hashlib
import json
import math
import os
from pathlib import Path
from typing import Any

from ppl_tunnels.verification.claims import Claim, Position
from ppl_tunnels.verification.invariants import Invariant
from ppl_tunnels.verification.ladder import Rung

SCHEMA = "ppl_tunnels.certificate/1"
EXIT_STATUS = {"certified": 0, "refuted": 1, "undecided": 3}


@dataclasses.dataclass(frozen=True)
class Certificate:
    """What `certify` returns.

    Attributes:
        verdict: "certified", "refuted" or "undecided".
        claim: the population claim in words, with the bound.
        reasons: why this verdict, one sentence each.
        tolerance_bits, confidence: what was asked for.
        episodes: independent sequences judged.
        tunnel, predictor, oracle, keys, versions: plain facts (see the JSON).
        claims, positions, invariants, ladder: the findings.
        vacuous: whether a trivial agent lies within the tolerance.
    """

    verdict: str
    claim: str
    reasons: tuple[str, ...]
    tolerance_bits: float
    confidence: float
    episodes: int
    tunnel: dict[str, Any]
    predictor: dict[str, Any]
    claims: tuple[Claim, ...]
    positions: tuple[Position, ...]
    invariants: tuple[Invariant, ...]
    ladder: tuple[Rung, ...]
    vacuous: bool
    oracle: dict[str, Any]
    keys: dict[str, Any]
    versions: dict[str, str]
    platform: str
    precision: str
    seconds: float
    created: str
    unit: str = "sequence"
    schema: str = SCHEMA

    @property
    def exit_status(self) -> int:
        """0 certified, 1 refuted, 3 undecided."""
        return EXIT_STATUS[self.verdict]

    def to_json(self) -> dict[str, Any]:
        """Plain data with its content hash, as it is written to a file."""
        content = _plain(dataclasses.asdict(self))
        return {**content, "content_hash": content_hash(content)}

    def save(self, path: str | os.PathLike) -> None:
        """Write the JSON file; beside first, then renamed, so that it is never half-written."""
        write_text(Path(path), json.dumps(self.to_json(), indent=1, allow_nan=False, ensure_ascii=False) + "\n")

    def __str__(self) -> str:
        return "\n".join([f"{self.verdict.upper()}: {self.claim}", *(f"  - {reason}" for reason in self.reasons)])


def content_hash(content: dict[str, Any]) -> str:
    """Hex SHA-256 of the canonical JSON of everything but the hash itself."""
    body = {name: value for name, value in content.items() if name != "content_hash"}
    return hashlib.sha256(json.dumps(body, sort_keys=True, allow_nan=False).encode()).hexdigest()


def load_certificate(path: str | os.PathLike) -> dict[str, Any]:
    """Read a certificate file as plain data.

    Raises:
        ValueError: not a certificate, truncated, or changed since it was written; says which.
    """
    file = Path(path)
    if not file.is_file():
        raise ValueError(f"there is no file {str(path)!r}; give the path of a certificate (JSON)")
    try:
        content = json.loads(file.read_text(encoding="utf-8"), parse_constant=_refuse_constant)
    except ValueError as error:
        raise ValueError(
            f"{path} is not a JSON file, or is truncated ({error}); a certificate is written by certify"
        ) from error
    if not isinstance(content, dict) or content.get("schema") != SCHEMA:
        found = content.get("schema") if isinstance(content, dict) else type(content).__name__
        raise ValueError(f"{path} has schema {found!r}; expected {SCHEMA!r}: it is not a certificate of this version")
    missing = [field.name for field in dataclasses.fields(Certificate) if field.name not in content]
    if missing:
        raise ValueError(f"{path} lacks the field {missing[0]!r}; it is truncated, or was edited: certify again")
    if content.get("content_hash") != content_hash(content):
        raise ValueError(
            f"{path} does not match its content_hash: a field was changed after it was written; certify again"
        )
    return content


def _refuse_constant(name: str) -> None:
    raise ValueError(f"it holds {name}, which no certificate does")


def write_text(path: Path, text: str) -> None:
    """Write a file beside its place, then rename it there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        beside.write_text(text, encoding="utf-8")
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)


def _plain(value: Any) -> Any:
    """JSON types only: tuples to lists, NumPy numbers to Python's, unbounded numbers to null."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(item) for item in (sorted(value) if isinstance(value, set | frozenset) else value)]
    if hasattr(value, "item") and getattr(value, "ndim", None) == 0:
        value = value.item()
    if isinstance(value, float):
        if math.isnan(value):
            raise ValueError("a certificate cannot hold NaN; this is a bug in whatever computed it")
        return None if math.isinf(value) else value
    if value is None or isinstance(value, bool | int | str):
        return value
    return str(value)
