"""Models on disk: a folder that says everything needed to use the model again, with no tunnel and no oracle in reach.

    model.json   schema, architecture, configuration, encoding, tunnel, training, versions, hashes
    weights/     the parameters, by orbax

The folder is written under another name beside its place and renamed, so it is there as a whole or not at all. On
loading every hash is checked: of each file before it is read, of the weights afterwards. The optimiser's state is not
kept: this is the end of a run, not a point to continue it from.
"""

import hashlib
import json
import platform
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
from flax import nnx

from ppl_tunnels.encoding import Encoding
from ppl_tunnels.models.architectures import SequenceModel, architecture, architecture_name, configure
from ppl_tunnels.models.predictor import ModelPredictor, fingerprint_of

SCHEMA = 1
RECORD, WEIGHTS = "model.json", "weights"
LIBRARIES = ("ppl-tunnels", "jax", "jaxlib", "flax", "optax", "numpyro", "numpy", "orbax-checkpoint")
FIELDS = {
    "architecture": str,
    "config": dict,
    "encoding": dict,
    "name": str,
    "targets": str | None,
    "training": dict,
    "tunnel": dict,
    "versions": dict,
    "weights_sha256": str,
    "fingerprint": str,
    "files": dict,
}


def save_model(predictor: ModelPredictor, directory: str | Path) -> Path:
    """Write a predictor as a folder, whole or not at all.

    Args:
        predictor: of a registered architecture.
        directory: the folder; a model already there is replaced in one go.

    Returns:
        The folder.

    Raises:
        ValueError: the architecture is not registered, a fact is not plain data, or something else lies at `directory`.
    """
    directory = Path(directory).resolve()
    require_destination(directory)
    record = _record(predictor)
    json.dumps(record, allow_nan=False)  # refuses what is not plain data before anything is written
    directory.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{directory.name}-", dir=directory.parent) as beside:
        written = Path(beside) / "new"
        written.mkdir()
        _write_weights(predictor.model, written / WEIGHTS)
        weights = written / WEIGHTS
        record["files"] = {
            path.relative_to(weights).as_posix(): _hash_file(path)
            for path in sorted(weights.rglob("*"))
            if path.is_file()
        }
        (written / RECORD).write_text(json.dumps(record, indent=1, allow_nan=False) + "\n", encoding="utf-8")
        if not directory.exists():
            written.rename(directory)
            return directory
        old = directory.rename(Path(beside) / "old")
        try:
            written.rename(directory)
        except BaseException:
            old.rename(directory)
            raise
    return directory


def load_model(directory: str | Path) -> ModelPredictor:
    """The predictor that `save_model` or `fit` wrote; its predictions are bit-identical on the same machine.

    Args:
        directory: a model folder, or the folder of a run with a `model` in it.

    Raises:
        ValueError: the folder is missing, incomplete, changed, or not one of ours; says which and what to do.

    Example:
        >>> import jax, ppl_tunnels, tempfile
        >>> from ppl_tunnels.models.architectures import build
        >>> encoding = ppl_tunnels.load_tunnel("coin").configure(length=5).encoding()
        >>> predictor = ModelPredictor(build("transformer", encoding, {}, key=jax.random.key(0)), encoding)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     again = load_model(save_model(predictor, folder + "/model"))
        >>> again.fingerprint == predictor.fingerprint
        True
    """
    directory = Path(directory).resolve()
    if not directory.is_dir():
        raise ValueError(f"there is no folder {directory}; give the one that fit or save_model wrote")
    if not (directory / RECORD).is_file() and (directory / "model" / RECORD).is_file():
        directory = directory / "model"
    record = _read_record(directory)
    try:
        config = configure(record["architecture"], record["config"])
        encoding = Encoding.from_json(record["encoding"])
        abstract = nnx.eval_shape(lambda: architecture(record["architecture"]).model(config, rngs=nnx.Rngs(0)))
        found = fingerprint_of(record["weights_sha256"], config, encoding)
    except (ValueError, TypeError, AttributeError) as error:
        raise ValueError(f"{directory / RECORD} does not describe a model: {error}") from error
    _require_equal(directory / RECORD, "configuration, encoding or hash of the weights", found, record["fingerprint"])
    # Orbax spills tracebacks over damaged files, so it is only shown whole ones.
    for name, wanted in record["files"].items():
        path = directory / WEIGHTS / name
        if not path.is_file():
            raise ValueError(f"{path} is missing; restore the folder or train again")
        _require_equal(path, "file", _hash_file(path), wanted)
    model = _read_weights(abstract, directory / WEIGHTS)
    facts = {field: record[field] for field in ("name", "targets", "training", "tunnel")}
    predictor = ModelPredictor(model, encoding, **facts)
    _require_equal(directory, "weights", predictor.weights_hash, record["weights_sha256"])
    return predictor


def require_destination(directory: str | Path) -> None:
    """Refuse to write a model where something else lies.

    Raises:
        ValueError: `directory` exists and is not a model folder.
    """
    directory = Path(directory).resolve()
    if directory.exists() and not (directory / RECORD).is_file():
        raise ValueError(f"{directory} exists and is not a model folder (no {RECORD}); choose another or remove it")


def _require_equal(path: Path, what: str, found: str, wanted: str) -> None:
    if found != wanted:
        raise ValueError(
            f"{path}: the {what} changed since the model was saved (SHA-256 {found[:12]}…, recorded {wanted[:12]}…); "
            "restore the folder or train again"
        )


def _hash_file(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _record(predictor: ModelPredictor) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "architecture": architecture_name(predictor.model),
        "config": vars(predictor.model.config),
        "encoding": predictor.encoding.to_json(),
        "name": predictor.name,
        "targets": predictor.targets,
        "training": dict(predictor.training),
        "tunnel": dict(predictor.tunnel),
        "versions": {"python": platform.python_version(), **{library: version(library) for library in LIBRARIES}},
        "weights_sha256": predictor.weights_hash,
        "fingerprint": predictor.fingerprint,
    }


def _read_record(directory: Path) -> dict[str, Any]:
    path = directory / RECORD
    if not path.is_file():
        raise ValueError(f"{directory} is not a model folder (no {RECORD}); give the one that fit or save_model wrote")
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is not JSON ({error}); the file is truncated or was changed: train again") from error
    schema = record.get("schema") if isinstance(record, dict) else None
    if schema != SCHEMA:
        raise ValueError(
            f"{path} has schema {schema!r} and this version reads {SCHEMA}; load it with the version that wrote it"
        )
    for field, kind in FIELDS.items():
        if not isinstance(record.get(field, ...), kind):
            raise ValueError(
                f"{path}: field {field!r} is missing or not what it should be; restore the file or train again"
            )
    return record


def _write_weights(model: SequenceModel, path: Path) -> None:
    import orbax.checkpoint as ocp  # seconds to import, and only saving and loading need it

    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(path, nnx.to_pure_dict(nnx.state(model, nnx.Param)))
        checkpointer.wait_until_finished()


def _read_weights(model: SequenceModel, path: Path) -> SequenceModel:
    import orbax.checkpoint as ocp

    graph, abstract = nnx.split(model, nnx.Param)
    # Restoring onto named devices: left to itself, orbax takes the sharding of the machine that saved.
    device = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    wanted = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=device), nnx.to_pure_dict(abstract)
    )
    with ocp.StandardCheckpointer() as checkpointer:
        found = checkpointer.restore(path, wanted)
    nnx.replace_by_pure_dict(abstract, found)
    return nnx.merge(graph, abstract)
