"""Text on the page stands out from its ground in both colour schemes (WCAG 2.2, contrast 4.5)."""

import re
from pathlib import Path

import pytest

from ppl_tunnels.verification import report


def luminance(colour: str) -> float:
    """Relative luminance of #rrggbb (WCAG 2.2)."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("text", ["ink", "muted", *report.VERDICTS])
@pytest.mark.parametrize("ground", ["paper", "panel", "tinted panel"])
def test_text_stands_out_from_its_ground(scheme, text, ground):
    css = (Path(report.__file__).parent / "report.css").read_text(encoding="utf-8")
    roots = [dict(re.findall(r"--(\w+): (#[0-9a-f]{6});", block)) for block in re.findall(r":root \{([^}]*)\}", css)]
    colours = roots[0] if scheme == "light" else roots[0] | roots[1]
    assert len(roots[0]) == len(roots[1]) == 8, "both schemes set every colour"
    opacity = float(re.search(r"\.beyond \{ fill: var\(--ink\); fill-opacity: ([\d.]+)", css)[1])
    colours["tinted panel"] = mixed(colours["ink"], colours["panel"], opacity)
    dark, light = sorted(luminance(colours[name]) for name in (text, ground))
    assert (light + 0.05) / (dark + 0.05) >= 4.5


def mixed(top: str, ground: str, opacity: float) -> str:
    channels = [(int(top[i : i + 2], 16), int(ground[i : i + 2], 16)) for i in (1, 3, 5)]
    return "#" + "".join(f"{round(opacity * a + (1 - opacity) * b):02x}" for a, b in channels)
