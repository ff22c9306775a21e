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
# `cargo test --workspace` and `cargo build -p fullbore-python` leave the module beside the binary.
LIBRARY = Path(BINARY).with_name("libfullbore_python.so")


@functools.cache
def _made():
    assert LIBRARY.is_file(), f"{LIBRARY} is not there: cargo build -p fullbore-python"
    made = tempfile.TemporaryDirectory(prefix="fullbore-package-")
    package = Path(made.name) / "fullbore"
    package.mkdir()
    for file in SOURCE.iterdir():
        if file.is_file() and not file.name.endswith(".so"):
            (package / file.name).symlink_to(file)
    (package / "_native.abi3.so").symlink_to(LIBRARY)
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
