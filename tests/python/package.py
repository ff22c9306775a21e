"""The Python package under test. The helpers of the tests have its name, so it is loaded by another one.

`place()` is a directory that another process can have in PYTHONPATH: there, the package has its own name.
"""

from __future__ import annotations

import functools
import importlib.util
import sys
import tempfile
from pathlib import Path

from fullbore import BINARY, REPOSITORY

SOURCE = REPOSITORY / "python/fullbore"
# `cargo build -p fullbore-python` leaves the module beside the binary, and `cargo test --workspace` in `deps`.
LIBRARIES = [Path(BINARY).parent / place / "libfullbore_python.so" for place in (".", "deps")]


@functools.cache
def _made():
    built = [library.absolute() for library in LIBRARIES if library.is_file()]
    assert built, f"{LIBRARIES[0]} is not there: cargo build -p fullbore-python"
    newest = max(built, key=lambda library: library.stat().st_mtime)
    made = tempfile.TemporaryDirectory(prefix="fullbore-package-")
    package = Path(made.name) / "fullbore"
    package.mkdir()
    for file in SOURCE.iterdir():
        if file.is_file() and not file.name.endswith(".so"):
            (package / file.name).symlink_to(file)
    (package / "_native.abi3.so").symlink_to(newest)
    return made


def place() -> Path:
    return Path(_made().name)


@functools.cache
def load():
    package = place() / "fullbore"
    spec = importlib.util.spec_from_file_location(
        "fullbore_package", package / "__init__.py", submodule_search_locations=[str(package)]
    )
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
