"""`ppl-tunnels`: list, show, check, train, certify, run.

Exit status: 0 certified (or done), 1 refuted (or a check failed), 3 undecided, 2 what was given cannot be used; 130 after
Ctrl-C. JAX is imported by the verbs that need it, so that help answers at once.
"""

import enum
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

if TYPE_CHECKING:
    from ppl_tunnels.models import FitConfig
    from ppl_tunnels.tunnel import WindTunnel
    from ppl_tunnels.verification.certificate import Certificate

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="Wind tunnels as NumPyro programs, their exact oracles, and certificates for models.",
)

TunnelArgument = Annotated[str, typer.Argument(help="a name from 'list', or path/to/file.py:NAME", metavar="TUNNEL")]
SetOption = Annotated[
    list[str],
    typer.Option("--set", "-s", help="a setting of the tunnel, NAME=VALUE (repeatable)", metavar="NAME=VALUE"),
]
PresetOption = Annotated[
    str | None, typer.Option("--preset", help="a configuration that the tunnel names, such as paper", metavar="NAME")
]
PredictOption = Annotated[
    str | None, typer.Option("--predict", help="another site to predict, stream or latent", metavar="SITE")
]
JsonOption = Annotated[bool, typer.Option("--json", help="print JSON instead of text")]
ToleranceOption = Annotated[float, typer.Option("--tolerance", help="bits of KL and of entropy error")]
ConfidenceOption = Annotated[float, typer.Option("--confidence", help="of each one-sided bound")]
EpisodesOption = Annotated[
    int | None, typer.Option("--episodes", help="fresh episodes to judge; by default what the tolerance needs")
]
KeyOption = Annotated[
    int | None,
    typer.Option("--key", help="seed of the fresh episodes; by default a hash of weights, tunnel and configuration"),
]


# What shells report of a command that Ctrl-C ended.
_INTERRUPTED = 130


class Targets(enum.StrEnum):
    """What training fits."""

    oracle = "oracle"
    sampled = "sampled"


# Sampled values carry far less information a step: ten times the steps reach what certifies at .01 bits.
DEFAULT_STEPS = {Targets.oracle: 2_500, Targets.sampled: 25_000}

TargetsOption = Annotated[
    Targets, typer.Option(help="train on the oracle's probabilities, or on sampled values (ordinary cross-entropy)")
]
StepsOption = Annotated[int | None, typer.Option(help="training steps; by default 2,500 (oracle) or 25,000 (sampled)")]
BatchOption = Annotated[int, typer.Option(help="episodes a step")]
RateOption = Annotated[float | None, typer.Option("--learning-rate", help="peak learning rate")]
SeedOption = Annotated[int, typer.Option(help="seed of weights and training episodes")]
LayoutOption = Annotated[
    str | None, typer.Option("--layout", help="how models read the episodes, by a name that the tunnel gives")
]
FeaturesOption = Annotated[
    list[str], typer.Option("--features", help="a site to write as real features (repeatable)", metavar="SITE")
]
ArchitectureOption = Annotated[str, typer.Option("--model", help="architecture")]


@app.command("list")
def list_tunnels(as_json: JsonOption = False) -> None:
    """The tunnels that can be named."""
    from ppl_tunnels.registry import tunnel_names, tunnel_summary

    names = tunnel_names()
    rows = {name: {"source": source, "summary": tunnel_summary(source)} for name, source in sorted(names.items())}
    if as_json:
        _print_json(rows)
        return
    width = max(len(name) for name in rows)
    for name, row in rows.items():
        typer.echo(f"{name:<{width}}  {row['summary']}")
    typer.echo("A tunnel of your own: path/to/file.py:NAME")


@app.command()
def show(
    tunnel: TunnelArgument,
    settings: SetOption = [],  # noqa: B006  (typer reads it, nothing changes it)
    preset: PresetOption = None,
    predict: PredictOption = None,
    tolerance: ToleranceOption = 0.01,
    seed: SeedOption = 0,
    why: Annotated[
        bool, typer.Option("--why", help="which engines apply, and which condition fails for each other")
    ] = False,
    encoding: Annotated[
        bool,
        typer.Option("--encoding", help="what models read: every token in words, and one episode position by position"),
    ] = False,
    layout: LayoutOption = None,
    features: FeaturesOption = [],  # noqa: B006
) -> None:
    """A tunnel's sites, one episode with the oracle's prediction at each step, and its reference agents."""
    from rich.console import Console

    from ppl_tunnels.show import encoding_table, show_tunnel, why_table

    chosen, console = _tunnel(tunnel, settings, preset, predict), Console(width=None, highlight=False)
    if why:
        console.print(why_table(chosen))
    elif encoding or layout or features:
        console.print(encoding_table(chosen, chosen.encoding(layout, features=tuple(features)), seed=seed))
    else:
        show_tunnel(chosen, console, seed=seed, tolerance_bits=tolerance)


@app.command()
def check(
    tunnel: TunnelArgument,
    settings: SetOption = [],  # noqa: B006
    preset: PresetOption = None,
    predict: PredictOption = None,
    rounds: Annotated[int, typer.Option(help="independent draws of episodes for each property")] = 4,
    as_json: JsonOption = False,
) -> None:
    """Test a tunnel's oracle against brute force and the laws that every exact oracle obeys."""
    from ppl_tunnels.verification.properties import check_oracle

    chosen = _tunnel(tunnel, settings, preset, predict)
    findings = check_oracle(chosen, rounds=rounds)
    if as_json:
        _print_json([vars(finding) | {"worst": _finite(finding.worst)} for finding in findings])
    else:
        typer.echo(f"{chosen.name}: engine {chosen.oracle().engine}. {chosen.oracle().explain()}\n")
        _print_findings(findings)
    raise typer.Exit(0 if all(finding.passed for finding in findings) else 1)


@app.command()
def train(
    tunnel: TunnelArgument,
    out: Annotated[Path, typer.Option("--out", "-o", help="folder for the model and its metrics")],
    settings: SetOption = [],  # noqa: B006
    preset: PresetOption = None,
    predict: PredictOption = None,
    model: ArchitectureOption = "transformer",
    targets: TargetsOption = Targets.oracle,
    steps: StepsOption = None,
    batch: BatchOption = 64,
    learning_rate: RateOption = None,
    seed: SeedOption = 0,
    layout: LayoutOption = None,
    features: FeaturesOption = [],  # noqa: B006
) -> None:
    """Train a sequence model in a tunnel and save it."""
    chosen = _tunnel(tunnel, settings, preset, predict)
    _train(chosen, out, _fit_config(model, targets, steps, batch, learning_rate, seed, layout, features))


@app.command()
def certify(
    predictor: Annotated[str, typer.Argument(help="a folder that 'train' wrote, or path/to/file.py:FUNCTION")],
    tunnel: Annotated[
        str | None, typer.Argument(help="by default the tunnel that the model was trained in", metavar="[TUNNEL]")
    ] = None,
    settings: SetOption = [],  # noqa: B006
    preset: PresetOption = None,
    predict: PredictOption = None,
    tolerance: ToleranceOption = 0.01,
    confidence: ConfidenceOption = 0.99,
    episodes: EpisodesOption = None,
    key: KeyOption = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="folder for certificate.json and report.html")] = None,
    as_json: JsonOption = False,
) -> None:
    """Certify a predictor: certified (0), refuted (1) or undecided (3)."""
    from ppl_tunnels.loading import load_predictor

    loaded, own_tunnel = load_predictor(predictor)
    if tunnel is not None:
        chosen = _tunnel(tunnel, settings, preset, predict)
    elif own_tunnel is not None:
        chosen = _chosen(own_tunnel, settings, preset, predict)
    else:
        _fail(f"{predictor} does not say which tunnel it is for; name it: ppl-tunnels certify {predictor} TUNNEL")
    folder = out if out is not None else Path(predictor) if Path(predictor).is_dir() else None
    certificate = _certify(loaded, chosen, folder, tolerance, confidence, episodes, key, None, as_json)
    raise typer.Exit(certificate.exit_status)


@app.command()
def run(
    tunnel: TunnelArgument,
    settings: SetOption = [],  # noqa: B006
    preset: PresetOption = None,
    predict: PredictOption = None,
    model: ArchitectureOption = "transformer",
    targets: TargetsOption = Targets.oracle,
    steps: StepsOption = None,
    batch: BatchOption = 64,
    learning_rate: RateOption = None,
    seed: SeedOption = 0,
    layout: LayoutOption = None,
    features: FeaturesOption = [],  # noqa: B006
    tolerance: ToleranceOption = 0.01,
    confidence: ConfidenceOption = 0.99,
    episodes: EpisodesOption = None,
    key: KeyOption = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="by default runs/TUNNEL")] = None,
) -> None:
    """The main job: check the oracle, train a model, certify it, write certificate and report."""
    from ppl_tunnels.verification.properties import check_oracle

    chosen = _tunnel(tunnel, settings, preset, predict)
    folder = out if out is not None else Path("runs") / chosen.name
    config = _fit_config(model, targets, steps, batch, learning_rate, seed, layout, features)
    chosen.encoding(**config.encoding).outputs  # noqa: B018  (what no model can predict is refused now, not after the check)
    typer.echo(f"1/3  checking the oracle of {chosen.name} ({chosen.oracle().engine})")
    findings = check_oracle(chosen)
    _print_findings(findings)
    if not all(finding.passed for finding in findings):
        raise typer.Exit(1)
    typer.echo("2/3  training")
    predictor = _train(chosen, folder, config)
    typer.echo("3/3  certifying")
    certificate = _certify(predictor, chosen, folder, tolerance, confidence, episodes, key, findings, False)
    raise typer.Exit(certificate.exit_status)


def main() -> NoReturn:
    """The command line: one sentence instead of a traceback for what was given wrongly."""
    try:
        app()
    except KeyboardInterrupt:
        _interrupted()
    except SystemExit as ended:
        # Typer turns Ctrl-C into this status, without a word.
        if ended.code == _INTERRUPTED:
            _interrupted()
        raise
    except OSError as error:
        place = f" {error.filename!r}" if error.filename else ""
        sys.stderr.write(
            f"ppl-tunnels: cannot read or write{place}: {error.strerror or error}; nothing was left half-written: check the path, its "
            "permissions and the free space, or choose another folder with --out\n"
        )
        sys.exit(2)
    except ValueError as error:
        sys.stderr.write(f"ppl-tunnels: {error}\n")
        sys.exit(2)
    sys.exit(0)


def _interrupted() -> NoReturn:
    sys.stderr.write("ppl-tunnels: interrupted; nothing was left half-written\n")
    sys.exit(_INTERRUPTED)


def _tunnel(name: str, settings: list[str], preset: str | None, predict: str | None) -> "WindTunnel":
    import jax

    jax.config.update("jax_enable_x64", True)
    from ppl_tunnels.registry import load_tunnel

    return _chosen(load_tunnel(name), settings, preset, predict)


def _chosen(tunnel: "WindTunnel", settings: list[str], preset: str | None, predict: str | None) -> "WindTunnel":
    """A preset is the ground that single settings change."""
    tunnel = tunnel if preset is None else tunnel.preset(preset)
    tunnel = tunnel.configure(**_settings(settings))
    return tunnel if predict is None else tunnel.predicting(predict)


def _settings(settings: list[str]) -> dict[str, object]:
    from ppl_tunnels.settings import parse_settings

    return parse_settings(settings)


def _fit_config(model: str, targets: Targets, steps, batch, learning_rate, seed: int, layout, features) -> "FitConfig":
    from ppl_tunnels.models import FitConfig

    given = {"steps": DEFAULT_STEPS[targets] if steps is None else steps, "learning_rate": learning_rate}
    return FitConfig(
        architecture=model,
        targets=targets.value,
        batch=batch,
        seed=seed,
        encoding={**({"layout": layout} if layout else {}), **({"features": tuple(features)} if features else {})},
        **{name: value for name, value in given.items() if value is not None},
    )


def _train(tunnel: "WindTunnel", out: Path, config: "FitConfig"):
    from ppl_tunnels.models import fit

    result = fit(tunnel, config, directory=out)
    typer.echo(f"     model and metrics in {out}")
    return result.predictor


def _certify(
    predictor, tunnel, folder: Path | None, tolerance, confidence, episodes, key, findings, as_json: bool
) -> "Certificate":
    from ppl_tunnels.progress import CertificationProgress
    from ppl_tunnels.verification.certification import certify, default_episodes
    from ppl_tunnels.verification.evaluation import rounded_up
    from ppl_tunnels.verification.report import write_html

    count = default_episodes(tunnel, tolerance_bits=tolerance, confidence=confidence) if episodes is None else episodes
    if not as_json:
        typer.echo(
            f"     {rounded_up(count):,} fresh episodes, tolerance {tolerance:g} bits, confidence {100 * confidence:g} % each bound"
        )
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)  # now rather than after the work
    with CertificationProgress() as progress:
        certificate = certify(
            predictor,
            tunnel,
            key=key,
            tolerance_bits=tolerance,
            confidence=confidence,
            episodes=count,
            oracle_findings=findings,
            on_progress=progress,
        )
    content = certificate.to_json()
    if as_json:
        _print_json(content)
    else:
        typer.echo(f"\n{certificate}")
    # Said before it is written: a full disk should not cost the answer.
    if folder is not None:
        certificate.save(folder / "certificate.json")
        write_html(content, folder / "report.html")
        if not as_json:
            typer.echo(f"\ncertificate: {folder / 'certificate.json'}\nreport:      {folder / 'report.html'}")
    return certificate


def _print_findings(findings) -> None:
    for finding in findings:
        mark = "ok  " if finding.passed else "FAIL"
        detail = "" if finding.passed else f"  {finding.detail}"
        typer.echo(f"     {mark} {finding.name:<23} {finding.cases:>6} cases, worst {finding.worst:.1e}{detail}")


def _print_json(data) -> None:
    typer.echo(json.dumps(data, indent=1, allow_nan=False, ensure_ascii=False))


def _finite(value: float) -> float | None:
    return value if abs(value) != float("inf") else None


def _fail(message: str) -> NoReturn:
    sys.stderr.write(f"ppl-tunnels: {message}\n")
    raise typer.Exit(2)
