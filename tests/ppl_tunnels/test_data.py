"""A person's own data, refused where it does not fit, with the place named."""

from pathlib import Path

import numpy as np
import pytest

from ppl_tunnels import load_tunnel
from ppl_tunnels.errors import TunnelError

PROGRAMS = Path(__file__).with_name("programs.py")
ECHO = {"act": np.array([[0, 1, 2], [2, 2, 0]]), "echo": np.array([[0, 1, 1], [1, 1, 0]])}
PANEL = {"pixels": np.zeros((2, 2, 2), int), "label": np.zeros((2, 2), int)}


def changed(values, place, value, dtype=None):
    copy = np.array(values, dtype or values.dtype)
    copy[place] = value
    return copy


def test_values_arrive_as_the_program_would_draw_them():
    """Would catch data that the program reads in another type, or in another layout, than its own draws."""
    echo, panel = load_tunnel(f"{PROGRAMS}:echo"), load_tunnel(f"{PROGRAMS}:panel")
    given = echo.episodes(stream={name: value.tolist() for name, value in ECHO.items()})
    assert len(given) == 2 and given.latent == {} and given.context == {}
    for name, value in ECHO.items():
        assert given.stream[name].dtype == echo.reading.sites[name].dtype == np.int64
        assert given.stream[name].tolist() == value.tolist()
    given = panel.episodes(stream=PANEL, context={"hint": [1.0, 2.0]})
    assert given.context["hint"].dtype == np.int64
    assert given.stream["pixels"].shape == (2, *panel.reading.sites["pixels"].layout) == (2, 2, 2)


REFUSED = {
    "missing": ("echo", {"act": ECHO["act"]}, {}, ["stream site 'echo'", "missing", "act, echo"]),
    "unknown": ("echo", {**ECHO, "ehco": ECHO["echo"]}, {}, ["no site 'ehco'", "did you mean 'echo'?"]),
    "latent": ("echo", {**ECHO, "habit": [0, 0]}, {}, ["no site 'habit'", "known: act, echo"]),
    "wrong length": ("echo", {**ECHO, "act": ECHO["act"][:, :2]}, {}, ["'act'", "(2, 2)", "(n, 3)", "[episode, step]"]),
    "no episode axis": ("echo", {**ECHO, "act": ECHO["act"][0]}, {}, ["'act'", "shape (3,)", "(n, 3)"]),
    "a number": ("echo", {**ECHO, "act": 1}, {}, ["'act'", "shape ()", "(n, 3)"]),
    "ragged": ("echo", {**ECHO, "act": [[0, 1, 2], [0]]}, {}, ["'act'", "unequal lengths"]),
    "episodes differ": ("echo", {**ECHO, "act": ECHO["act"][:1]}, {}, ["'act' 1", "'echo' 2", "same episodes"]),
    "too large": (
        "echo",
        {**ECHO, "act": changed(ECHO["act"], (1, 2), 3)},
        {},
        ["'act' is 3", "episode 1, step 2", "0 to 2"],
    ),
    "negative": ("echo", {**ECHO, "act": changed(ECHO["act"], (0, 1), -1)}, {}, ["'act' is -1", "episode 0, step 1"]),
    "NaN": (
        "echo",
        {**ECHO, "act": changed(ECHO["act"], (1, 0), np.nan, float)},
        {},
        ["'act' is nan", "(1, 0) [episode, step]", "finite"],
    ),
    "fraction": (
        "echo",
        {**ECHO, "act": changed(ECHO["act"], (1, 1), 0.5, float)},
        {},
        ["'act' is 0.5", "(1, 1)", "whole numbers"],
    ),
    "words": ("echo", {**ECHO, "act": ECHO["act"].astype(str)}, {}, ["'act'", "<U", "expected numbers"]),
    "no context": ("panel", PANEL, {}, ["context site 'hint'", "missing"]),
    "plate shape": (
        "panel",
        {**PANEL, "pixels": np.zeros((2, 2), int)},
        {"hint": [0, 0]},
        ["'pixels'", "(n, 2, 2)", "step, …"],
    ),
    "context value": ("panel", PANEL, {"hint": [0, 3]}, ["'hint' is 3", "episode 1", "0 to 2"]),
    "vector": (
        "survey",
        {"answers": np.full((1, 2, 2), 2)},
        {},
        ["'answers' is [2 2]", "episode 0, step 0", "4 values"],
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusals_name_the_place_and_what_was_expected(case):
    """Would catch data that a gather clamps, a cast truncates or a broadcast repeats, silently."""
    name, stream, context, words = REFUSED[case]
    with pytest.raises(TunnelError) as refusal:
        load_tunnel(f"{PROGRAMS}:{name}").episodes(stream=stream, context=context)
    assert all(word in str(refusal.value) for word in words), str(refusal.value)


def test_continuous_sites_take_any_value_of_their_support():
    """Would catch integers refused for a real site, or infinity accepted."""
    line = load_tunnel(f"{PROGRAMS}:line")
    x = np.array([[1, 2, 3]])
    assert line.episodes(stream={"y": x}, context={"x": x}).stream["y"].dtype == np.float64
    with pytest.raises(TunnelError, match=r"'y' is inf at \(0, 2\)"):
        line.episodes(stream={"y": changed(x, (0, 2), np.inf, float)}, context={"x": x})
