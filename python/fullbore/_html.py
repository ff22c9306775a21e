"""Tables of HTML for notebooks."""

from __future__ import annotations

from html import escape
from typing import Any


def table(head: list[str], rows: list[list[Any]]) -> str:
    """A table of HTML; every text is escaped."""

    def cells(tag: str, row: list[Any]) -> str:
        return "".join(f"<{tag}>{escape(str(cell))}</{tag}>" for cell in row)

    lines = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    return f"<table><thead><tr>{cells('th', head)}</tr></thead><tbody>{lines}</tbody></table>"
