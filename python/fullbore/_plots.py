"""Pictures with matplotlib."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Optional

import numpy as np

from ._extras import extra
from ._html import FATES

if TYPE_CHECKING:
    from ._products import Product
    from ._spectra import Spectrum

# Units of frequency, from the largest.
UNITS = ((1e9, "GHz"), (1e6, "MHz"), (1e3, "kHz"), (1.0, "Hz"))
# The most lines with a name in a legend.
NAMED = 16


def new_axes(axes: Any) -> Any:
    """These axes, or those of a new figure."""
    return extra("matplotlib.pyplot").subplots()[1] if axes is None else axes


def frequency_unit(frequency: Any, in_hertz: bool) -> tuple[float, str]:
    """What to divide frequencies by, and the name of the axis."""
    if not in_hertz:
        return 1.0, "frequency [cycles per sample]"
    most = float(np.max(np.abs(frequency), initial=0.0))
    scale, name = next((unit for unit in UNITS if most >= unit[0]), UNITS[-1])
    return scale, f"frequency [{name}]"


def product(told: Product, axes: Any, line: Optional[int]) -> Any:
    """A result of `fullbore spectrum`."""
    axes = new_axes(axes)
    axes.set_title(f"{told.document['input']}, {told.document['samples']}", fontsize="small")
    chosen = range(len(told.lines)) if line is None else [line]
    if told.kind == "waterfall":
        return _waterfall(told, axes, chosen[0])
    if told.kind == "histogram":
        return _histogram(told, axes, chosen)
    decibels = told.decibels
    if told.kind == "series":
        across, name = told.seconds, "time [s]"
    else:
        scale, name = frequency_unit(told.frequency, told.document["sample_rate_known"])
        across = told.frequency / scale
    for number in chosen:
        axes.plot(across, decibels[number], label=told.lines[number], linewidth=1)
    axes.set_xlabel(name)
    axes.set_ylabel("power [dB of full scale]")
    if 1 < len(chosen) <= NAMED:
        axes.legend(title="line")
    return axes


def _waterfall(told: Product, axes: Any, line: int) -> Any:
    scale, name = frequency_unit(told.frequency, told.document["sample_rate_known"])
    frequency, seconds = told.frequency / scale, told.seconds
    mesh = axes.pcolormesh(frequency, seconds, told.decibels[line], shading="nearest")
    axes.invert_yaxis()
    axes.set_xlabel(name)
    axes.set_ylabel("time [s]")
    axes.figure.colorbar(mesh, ax=axes, label="power [dB of full scale]")
    return axes


def _histogram(told: Product, axes: Any, chosen: Any) -> Any:
    levels, width = told.levels, 0.8 / len(chosen)
    places = np.arange(len(levels))
    for at, number in enumerate(chosen):
        axes.bar(places + (at - (len(chosen) - 1) / 2) * width, told.fractions[number], width, label=told.lines[number])
    axes.plot(places, told.expected[chosen[0]], "k_", markersize=16, label="Gaussian")
    if len(levels) <= NAMED:
        axes.set_xticks(places, [f"{level:.3g}" for level in levels])
    axes.set_xlabel("level")
    axes.set_ylabel("fraction of samples")
    if len(chosen) <= NAMED:
        axes.legend(title="line")
    return axes


def spectrum(row: Spectrum, axes: Any) -> Any:
    """A row of a live spectrum."""
    axes = new_axes(axes)
    scale, name = frequency_unit(row.frequency, row.in_hertz)
    axes.plot(row.frequency / scale, row.power, linewidth=1)
    axes.set_title(f"{row.time} UTC", fontsize="small")
    axes.set_xlabel(name)
    axes.set_ylabel("power [dB of full scale]")
    return axes


def account(accounts: dict[str, Any], axes: Any) -> Any:
    """The terms of accounts: a bar for each stream, whose parts are the fates of its frames."""
    axes = new_axes(axes)
    names = [name for name, told in accounts.items() if told]
    begun = np.zeros(len(names))
    for term, colour in FATES.items():
        counts = np.array([accounts[name]["terms"][term] for name in names], dtype=np.float64)
        expected = np.array([max(accounts[name]["terms"]["expected"], 1) for name in names], dtype=np.float64)
        shares = 100 * counts / expected
        axes.barh(names, shares, left=begun, color=colour, label=term)
        begun += shares
    axes.set_xlabel("frames [%]")
    axes.set_xlim(0, 100)
    axes.invert_yaxis()
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncols=len(FATES), fontsize="small")
    return axes
