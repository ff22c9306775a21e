"""Sphinx: the pages of docs/ as they stand, in Markdown."""

project = "fullbore"
extensions = ["myst_parser"]
html_theme = "furo"
exclude_patterns = ["requirements.txt"]
myst_heading_anchors = 3
suppress_warnings = ["myst.xref_missing"]  # links to files of the repository that are no pages
