"""Tables of HTML for notebooks."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import Any


def table(head: list[str], rows: list[list[Any]]) -> str:
    """A table of HTML; every text is escaped."""

    def cells(tag: str, row: list[Any]) -> str:
        return "".join(f"<{tag}>{escape(str(cell))}</{tag}>" for cell in row)

    lines = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    return f"<table><thead><tr>{cells('th', head)}</tr></thead><tbody>{lines}</tbody></table>"


# Parts of a timeline: as many as there are pixels.
PARTS = 600
# Colours of the fates of frames; of one part, the last that it has.
FATES = {"written": "#2a7f3f", "missing": "#c0392b", "late": "#2471a3", "damaged": "#8e44ad", "overrun": "#e67e22"}


def timeline(frames: int, gaps: Iterable[tuple[int, int, str]], marks: Iterable[tuple[int, str]] = ()) -> str:
    """The frames of a stream as a bar from its first to its last one: gaps (first, count, cause) in the colour of their
    cause, and marks (frame, text). A gap is a pixel wide at least."""
    if frames < 1:
        return ""
    fates = list(FATES)
    parts = [0] * PARTS
    for first, count, cause in gaps:
        begin = max(0, min(first * PARTS // frames, PARTS - 1))
        end = max(begin + 1, min(-(-(first + count) * PARTS // frames), PARTS))
        fate = fates.index(cause) if cause in FATES else 1
        for part in range(begin, end):
            parts[part] = max(parts[part], fate)
    shapes, begin = [], 0
    for part in range(1, PARTS + 1):
        if part == PARTS or parts[part] != parts[begin]:
            name = fates[parts[begin]]
            shapes.append(
                f'<rect x="{begin}" y="4" width="{part - begin}" height="12" fill="{FATES[name]}"><title>{name}</title></rect>'
            )
            begin = part
    for frame, text in marks:
        if 0 <= frame <= frames:
            at = f"{frame * PARTS / frames:.1f}"
            shapes.append(f'<path d="M{at} 0V20" stroke="black"><title>{escape(text)}</title></path>')
    return f'<svg width="{PARTS}" height="20" role="img" aria-label="timeline">{"".join(shapes)}</svg>'
