"""The encoding of a tunnel: which tokens each site gets, and what stands where."""

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ppl_tunnels.encoding import Encoding
from ppl_tunnels.errors import TunnelError, suggest
from ppl_tunnels.layouts import Layout, check_layout
from ppl_tunnels.site_codes import site_code

if TYPE_CHECKING:
    from ppl_tunnels.tunnel import WindTunnel

START = "start"


def make_encoding(
    tunnel: "WindTunnel",
    layout: Layout | str | None = None,
    *,
    start: bool | None = None,
    shared: Sequence[Sequence[str]] = (),
    features: Sequence[str] = (),
) -> Encoding:
    """See `WindTunnel.encoding`."""
    reading = tunnel.reading
    context, stream = reading.named("context"), reading.named("stream")
    names = (*context, *stream)
    arranged = _layout(tunnel, layout, start)
    shared = shared or arranged.shared
    for name in (*features, *(name for group in shared for name in group)):
        if name not in names:
            raise TunnelError(f"{name!r} is not written, so it has no tokens; {suggest(name, list(names))}")
    check_layout(arranged, context=context, stream=stream, predict=tunnel.predict, scored=tunnel.scored.tolist())
    first, column, codes = len(arranged.markers), 0, {}
    for name in names:
        code = site_code(reading.sites[name], features=name in features, first=first, column=column)
        partner = next((codes[other] for group in shared if name in group for other in group if other in codes), None)
        if partner is not None:
            if (code.kind, code.values) != (partner.kind, partner.values) or code.kind == "number":
                raise TunnelError(
                    f"shared={name!r} and {partner.name!r} cannot share tokens: their values differ; give each its own range"
                )
            code = dataclasses.replace(code, first=partner.first)
        else:
            first += code.tokens
        column += code.features
        codes[name] = code
    predicted = codes.get(tunnel.predict)
    if predicted is None or predicted.kind == "element":
        predicted = site_code(reading.sites[tunnel.predict], features=False, first=0, column=0)
        if predicted.kind == "element":
            predicted = dataclasses.replace(predicted, kind="number", values=())
        if predicted.draws != 1:
            raise TunnelError(
                f"predicted latent {tunnel.predict!r} is {predicted.draws} draws, whose joint law a softmax over one draw cannot "
                "express; predict a single draw"
            )
    encoding = Encoding(tuple(codes.values()), predicted, arranged)
    if encoding.readout.min() < 0:
        raise TunnelError(
            f"start=False leaves no position from which {tunnel.predict!r} of the first step could be predicted; use a start token"
        )
    return encoding


def _layout(tunnel: "WindTunnel", layout: Layout | str | None, start: bool | None) -> Layout:
    reading = tunnel.reading
    if isinstance(layout, str):
        if layout not in tunnel.layouts:
            known = suggest(layout, list(tunnel.layouts)) if tunnel.layouts else "it names none; give a Layout"
            raise TunnelError(f"tunnel {tunnel.name!r} has no layout {layout!r}; {known}")
        layout = tunnel.layouts[layout](**tunnel.configuration)
    if layout is None:
        header = " ".join(f"{{{name}}}" for name in reading.named("context"))
        line = " ".join(f"{{{name}}}" for name in reading.named("stream"))
        layout = Layout(header, (line,) * reading.steps)
        first = (*reading.named("context"), *reading.named("stream"))[0]
        start = tunnel.predict == first if start is None else start
    return dataclasses.replace(layout, header=f"{START} {layout.header}".strip()) if start else layout
