"""Sphinx configuration: the Markdown pages of docs/, rendered with Furo."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

project = "fullbore"
extensions = ["myst_parser", "schema_table"]
html_theme = "furo"
html_title = "fullbore"
exclude_patterns = ["requirements.txt", "notebooks"]
myst_enable_extensions = ["deflist"]
myst_heading_anchors = 3
suppress_warnings = ["myst.xref_missing"]  # links to files of the repository that are not pages
