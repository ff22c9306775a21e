"""Packages that only some functions need."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from ._native import Error

# The extra of this package that brings each package.
EXTRAS = {
    "astropy": "astronomy",
    "baseband": "astronomy",
    "dask": "dask",
    "distributed": "dask",
    "fsspec": "tables",
    "h5py": "bluesky",
    "matplotlib": "plots",
    "ophyd_async": "bluesky",
    "pandas": "tables",
    "websockets": "station",
    "xarray": "tables",
}


def extra(module: str) -> Any:
    """A module of another package. If the package is not installed, the error names the extra that brings it."""
    package = module.partition(".")[0]
    try:
        return import_module(module)
    except ImportError as error:
        if error.name is not None and error.name.partition(".")[0] != package:
            raise
        missing = Error(f"{package} is not installed\n  pip install 'fullbore[{EXTRAS[package]}]'")
        missing.hint = f"pip install 'fullbore[{EXTRAS[package]}]'"
        raise missing from None
