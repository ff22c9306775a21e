"""Recordings of fullbore as numpy arrays.

    >>> import fullbore
    >>> scan = fullbore.open("store/experiment_one")        # doctest: +SKIP
    >>> stream = scan["46220"]                              # doctest: +SKIP
    >>> stream.frames[:100]                                 # doctest: +SKIP
    >>> stream.samples["2026-11-27T12:00:00":1000]          # doctest: +SKIP

`open` opens a scan, `open_store` a store of scans, and `Recorder` records. `Station` is the client of a daemon. `generate`,
`play`, `bench` and `plan` run the command line program, which is part of the package: `fullbore --help`.
"""

from ._native import (
    DamagedError,
    Error,
    NotFoundError,
    OptionError,
    UnsupportedError,
    __version__,
)
from ._commands import Command, CommandError, bench, generate, plan, play
from ._http import StationError
from ._products import Product
from ._recorder import Recorder, TapBlock
from ._samples import Line, Samples
from ._scan import Scan, Store, open, open_store, verify
from ._spectra import Spectrum
from ._station import Station, StationRecording
from ._stream import Block, Frames, Gap, Stream, Times

__all__ = [
    "Block",
    "Command",
    "CommandError",
    "DamagedError",
    "Error",
    "Frames",
    "Gap",
    "Line",
    "NotFoundError",
    "OptionError",
    "Product",
    "Recorder",
    "Samples",
    "Scan",
    "Spectrum",
    "Station",
    "StationError",
    "StationRecording",
    "Store",
    "Stream",
    "TapBlock",
    "Times",
    "UnsupportedError",
    "__version__",
    "bench",
    "generate",
    "open",
    "open_store",
    "plan",
    "play",
    "verify",
]
