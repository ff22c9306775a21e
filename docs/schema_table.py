"""The directive `schema-table`: the fields of a JSON Schema as a table.

The descriptions come from the schema itself, so the page cannot disagree with the file that the tests validate against.
"""

import json
from pathlib import Path

from sphinx.util.docutils import SphinxDirective


def type_of(field):
    """The type of a field, in one word or a short list."""
    if "$ref" in field:
        return field["$ref"].rsplit("/", 1)[-1]
    if "const" in field:
        return f'"{field["const"]}"'
    if "enum" in field:
        return ", ".join("null" if value is None else f'"{value}"' for value in field["enum"])
    for key in ("oneOf", "anyOf"):
        if key in field:
            return " or ".join(dict.fromkeys(type_of(choice) for choice in field[key]))
    kind = field.get("type", "any")
    kind = " or ".join(kind) if isinstance(kind, list) else kind
    if kind == "array" and isinstance(field.get("items"), dict):
        return f"list of {type_of(field['items'])}"
    return kind


def rows_of(field, path=""):
    """Each named field below this one, with its path and its description."""
    for name, inner in field.get("properties", {}).items():
        inner_path = f"{path}.{name}" if path else name
        yield inner_path, type_of(inner), inner.get("description", "")
        yield from rows_of(inner, inner_path)
    if isinstance(field.get("items"), dict):
        yield from rows_of(field["items"], f"{path}[]")
    for key in ("oneOf", "anyOf", "allOf"):
        for choice in field.get(key, []):
            yield from rows_of(choice, path)


def cell(text):
    """Text that does not end its cell."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


def table(title, field):
    rows = list(dict.fromkeys(rows_of(field)))
    yield from (f"**{title}**", "", cell(field.get("description", "")), "")
    if rows:
        yield from ("| field | type | meaning |", "|---|---|---|")
        yield from (f"| `{path}` | {cell(kind)} | {cell(text)} |" for path, kind, text in rows)
        yield ""


class SchemaTable(SphinxDirective):
    """`{schema-table} account.schema.json`: a table of the document, and one of each of its definitions."""

    required_arguments = 1

    def run(self):
        page = Path(self.env.doc2path(self.env.docname))
        path = page.parent / self.arguments[0]
        self.env.note_dependency(str(path))
        schema = json.loads(path.read_text())
        lines = list(table("The document", schema))
        for name, definition in schema.get("$defs", {}).items():
            lines += table(f"`{name}`", definition)
        return self.parse_text_to_nodes("\n".join(lines))


def setup(app):
    app.add_directive("schema-table", SchemaTable)
    return {"parallel_read_safe": True}
