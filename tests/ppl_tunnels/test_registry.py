"""Finding tunnels by name, module and file."""

import importlib.metadata
from pathlib import Path

import pytest

from ppl_tunnels import load_tunnel, tunnel_names
from ppl_tunnels.errors import TunnelError
from ppl_tunnels.registry import tunnel_summary
from ppl_tunnels.tunnel import WindTunnel

PROGRAMS = Path(__file__).with_name("programs.py")


@pytest.mark.parametrize("name", sorted(tunnel_names()))
def test_every_name_loads_and_its_source_finds_it_again(name):
    """Would catch a listed tunnel that cannot be loaded, and a certificate whose tunnel cannot be found again."""
    tunnel = load_tunnel(name)
    assert isinstance(tunnel, WindTunnel)
    assert load_tunnel(tunnel.source) == tunnel


def test_a_file_is_a_source_too():
    """Would catch a file run twice, giving two unequal tunnels (and compiling everything twice)."""
    tunnel = load_tunnel(f"{PROGRAMS}:casino")
    assert tunnel.name == "casino" and tunnel.source == f"{PROGRAMS}:casino"
    assert load_tunnel(tunnel.source) == tunnel
    assert len(tunnel.fingerprint) == 64


def test_other_packages_can_register_tunnels(monkeypatch):
    """Would catch entry points ignored, or allowed to replace a built-in tunnel."""
    entries = [
        importlib.metadata.EntryPoint("theirs", "ppl_tunnels.tunnels.coin:coin", "ppl_tunnels.tunnels"),
        importlib.metadata.EntryPoint("bijection", "elsewhere:impostor", "ppl_tunnels.tunnels"),
    ]
    monkeypatch.setattr(
        importlib.metadata, "entry_points", lambda group: entries if group == "ppl_tunnels.tunnels" else []
    )
    assert load_tunnel("theirs").name == "coin"
    assert tunnel_names()["bijection"] == "ppl_tunnels.tunnels.bijection:bijection"


def test_a_package_from_outside_takes_one_file_and_one_line(monkeypatch, tmp_path):
    """Would catch a way in that only a stand-in for entry points goes: this is what installing such a package leaves."""
    (tmp_path / "dice_tunnels.py").write_text(PROGRAMS.read_text())
    installed = tmp_path / "dice_tunnels-1.0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: dice-tunnels\nVersion: 1.0\n")
    (installed / "entry_points.txt").write_text("[ppl_tunnels.tunnels]\ncasino = dice_tunnels:casino\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert tunnel_names()["casino"] == "dice_tunnels:casino"
    assert load_tunnel("casino").configure(length=2).length == 2
    assert PROGRAMS.read_text().startswith(f'"""{tunnel_summary("dice_tunnels:casino")}')
    assert len(tunnel_summary("dice_tunnels:casino")) > 20


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("bijektion", ["no tunnel 'bijektion'", "did you mean 'bijection'?", "path/to/file.py:NAME"]),
        (f"{PROGRAMS}", ["names a file but no tunnel", ":NAME"]),
        (f"{PROGRAMS}:casion", ["no tunnel 'casion'", "did you mean 'casino'?"]),
        (f"{PROGRAMS}:jnp", ["'jnp'", "module", "@wind_tunnel"]),
        ("no/such/file.py:casino", ["no file 'no/such/file.py'"]),
        ("no.such.module:casino", ["'no.such.module'", "cannot be imported"]),
    ],
)
def test_refusals_say_what_was_looked_for(name, words):
    """Would catch a traceback, or another tunnel than the one asked for."""
    with pytest.raises(TunnelError) as refusal:
        load_tunnel(name)
    assert all(word in str(refusal.value) for word in words), str(refusal.value)


def test_a_file_that_fails_is_named_and_not_kept(tmp_path):
    """Would catch a half-run module that later loads as if it were whole."""
    path = tmp_path / "mine.py"
    path.write_text("raise KeyError('oops')")
    with pytest.raises(TunnelError, match="mine.py cannot be run: KeyError: 'oops'"):
        load_tunnel(f"{path}:mine")
    path.write_text("mine = 3")
    with pytest.raises(TunnelError, match="'mine' in .* is a int, not a tunnel"):
        load_tunnel(f"{path}:mine")
