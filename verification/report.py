"""The certificate as one self-contained HTML page: the verdict, the claim in words, the pictures, the numbers.

The page is a function of the certificate's JSON alone, so any certificate file can be rendered without its model, its
tunnel or JAX. Every number on it is looked up in the certificate by path and carries that path and its full value
(`<data value data-path>`): what is printed is rounded, what is carried is not, and a test compares the two. It needs no
network, no fonts and no scripts, and its content security policy forbids them.
"""

import functools
import json
import math
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import jinja2
from markupsafe import Markup

from ppl_tunnels.verification import drawing, figures
from ppl_tunnels.verification.drawing import LogAxis
from ppl_tunnels.verification.numerals import numeral, telling_digits

SCHEMA = "ppl_tunnels.certificate/1"
VERDICTS = ("certified", "refuted", "undecided")
_REMEDY = "render the JSON file that ppl_tunnels' certify wrote, unedited"


def render_html(certificate: dict) -> str:
    """The certificate as an HTML page; the same certificate gives the same text.

    Args:
        certificate: the JSON-compatible dict of a certificate file (schema ppl_tunnels.certificate/1).

    Raises:
        ValueError: the dict is not such a certificate, or a field (named) is NaN, infinite or no JSON.

    Example:
        >>> render_html({"schema": "ppl_tunnels.certificate/1", "verdict": "certified", "tolerance_bits": float("nan")})
        Traceback (most recent call last):
        ValueError: certificate field tolerance_bits is nan; expected a finite number, or null for one that is unbounded
    """
    if not isinstance(certificate, dict):
        raise ValueError(f"the certificate is a {type(certificate).__name__}; expected a dict: {_REMEDY}")
    fields = dict(json_fields(certificate))
    for path, value in fields.items():
        if path.rpartition(".")[2] in ("tolerance", "tolerance_bits") and not _positive(value):
            raise ValueError(f"certificate field {path} is {value!r}; expected a positive number: {_REMEDY}")
    for name, expected in (("schema", (SCHEMA,)), ("verdict", VERDICTS)):
        if certificate.get(name) not in expected:
            known = " or ".join(repr(word) for word in expected)
            raise ValueError(f"certificate field {name} is {certificate.get(name)!r}; expected {known}: {_REMEDY}")
    try:
        derived = {"number": _number(fields), "rungs": _rungs(certificate)}
        derived["claims_axis"] = _claims_axis(certificate["claims"])
        agents = [rung["kl_bits"] for rung in derived["rungs"]]
        derived["ladder_axis"] = LogAxis.covering(agents, certificate["tolerance_bits"])
        return _environment().get_template("report.html").render(certificate | derived)
    except (jinja2.UndefinedError, KeyError) as error:
        raise ValueError(f"the certificate is not complete ({error}); expected schema {SCHEMA}: {_REMEDY}") from error


def write_html(certificate: dict, path: str | os.PathLike) -> None:
    """Write the certificate's page to a file, whole or not at all.

    Args:
        certificate: as in `render_html`.
        path: the file to write; one that exists is replaced in a single step.

    Raises:
        ValueError: as in `render_html`; nothing is written then.
        FileNotFoundError: the folder does not exist.
    """
    page, path = render_html(certificate), Path(path)
    if not path.parent.is_dir():
        raise FileNotFoundError(f"folder {str(path.parent)!r} does not exist; create it, or write somewhere else")
    beside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(beside, "w", encoding="utf-8", newline="\n") as file:
            file.write(page)
            file.flush()
            os.fsync(file.fileno())  # or a power cut after the rename could leave an empty file
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)


def json_fields(value: object, path: str = "") -> Iterator[tuple[str, str | int | float | bool | None]]:
    """Every leaf of a JSON value with its path.

    Raises:
        ValueError: a leaf is NaN or infinite, or is not JSON.

    Example:
        >>> dict(json_fields({"claims": [{"upper": 0.002}], "versions": {"a-b": "1"}}))
        {'claims[0].upper': 0.002, 'versions["a-b"]': '1'}
    """
    if isinstance(value, dict):
        for name, part in value.items():
            yield from json_fields(part, join_path(path, name))
    elif isinstance(value, list | tuple):
        for index, part in enumerate(value):
            yield from json_fields(part, f"{path}[{index}]")
    elif isinstance(value, float) and not math.isfinite(value):
        message = (
            f"certificate field {path} is {float(value)}; expected a finite number, or null for one that is unbounded"
        )
        raise ValueError(message)
    elif value is None or isinstance(value, str | int | float):
        yield path, value
    else:
        kind = type(value).__name__
        raise ValueError(
            f"certificate field {path} is a {kind}; expected JSON: convert it with float(), int() or tolist()"
        )


def join_path(path: str, name: str) -> str:
    """The path of a dict's field: `a.b`, or `a["b-c"]` for what is no identifier."""
    if not isinstance(name, str):
        raise ValueError(f"certificate field {path} has the key {name!r}; expected strings as keys, as JSON has them")
    if name.isidentifier():
        return f"{path}.{name}" if path else name
    return f"{path}[{json.dumps(name)}]"


@functools.cache
def _environment() -> jinja2.Environment:
    # Autoescape is on for every template: all text in a certificate is somebody's text.
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    parts = {"figures": figures, "key": drawing.key, "scale": drawing.scale}
    environment.globals |= parts | {"join_path": join_path, "telling_digits": telling_digits}
    return environment


def _number(fields: dict) -> Callable[..., Markup]:
    """The template's `number(path)`: a certificate's number, rounded for the eye, with its path and full value."""

    def number(path: str, *, missing: str = "–", plain: bool = False, **how) -> Markup:
        value = fields[path]
        text = missing if value is None else json.dumps(value) if plain else numeral(value, **how)
        return Markup('<data value="{}" data-path="{}">{}</data>').format(json.dumps(value), path, text)

    return number


def _positive(value: object) -> bool:
    return isinstance(value, int | float) and value > 0


def _claims_axis(claims: list[dict]) -> LogAxis:
    """One axis for all claims, in multiples of their tolerances."""
    numbers = [(claim[part], claim["tolerance"]) for claim in claims for part in ("lower", "estimate", "upper")]
    return LogAxis.covering([value / tolerance for value, tolerance in numbers if value is not None], 1.0)


def _rungs(certificate: dict) -> list[dict]:
    """The reference agents and the model among them, farthest from Bayes first; `paths` has where each number is."""
    columns = ("kl_bits", "total_variation", "entropy_error_bits")
    rungs = [
        rung | {"model": False, "paths": {name: f"ladder[{index}].{name}" for name in columns}}
        for index, rung in enumerate(certificate["ladder"])
    ]
    claims = {claim["name"]: (index, claim) for index, claim in enumerate(certificate["claims"])}
    if rungs and "kl_bits" in claims:
        paths = {name: f"claims[{claims[name][0]}].estimate" for name in columns if name in claims}
        row = {"agent": certificate["predictor"]["name"], "description": "the predictor under test", "model": True}
        rungs.append(row | {"kl_bits": claims["kl_bits"][1]["estimate"], "paths": paths, "within_tolerance": False})
    return sorted(rungs, key=lambda rung: -math.inf if rung["kl_bits"] is None else -rung["kl_bits"])
