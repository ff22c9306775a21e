"""`fullbore analyse`, or `python3 -m fullbore.analyse`: computes with scans on several cores or machines, with Dask."""

from __future__ import annotations

import argparse
import csv
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional

import numpy as np

from . import _analyses, _native, _pairs
from ._analyses import Result, Source, Work
from ._cluster import connected, run, workers_of
from ._extras import extra
from ._sums import WINDOWS
from .dask import streams_of

GOOD, FOUND, REFUSED = 0, 1, 2

# How the analyses are called, and what each does.
ANALYSES = {
    "spectra": "the power of each line over frequency",
    "power": "the mean square of each line over time",
    "statistics": "mean, deviation, skewness, kurtosis, extremes and absent samples of each line",
    "correlate": "cross-power, coherence and residual delay of pairs of streams",
    "subband": "a part of the band as complex samples at a lower rate",
}
ENDINGS = {"subband": (".npy",)}


@dataclass(frozen=True)
class Output:
    """A file of a result. It has its name once it is complete."""

    path: Path

    @property
    def part(self) -> Path:
        """Its name until then."""
        return self.path.with_name(f"{self.path.name}.part")

    def done(self) -> str:
        """Gives it its name."""
        os.replace(self.part, self.path)
        return str(self.path)


def parser() -> argparse.ArgumentParser:
    """The options."""
    parser = argparse.ArgumentParser(prog="fullbore analyse", description=__doc__.partition(": ")[2])
    verbs = parser.add_subparsers(dest="analysis", required=True, metavar="ANALYSIS")
    for name, does in ANALYSES.items():
        verb = verbs.add_parser(name, help=does, description=f"{does[0].upper()}{does[1:]}.")
        add = verb.add_argument
        add("scans", nargs="+", help="a session, SESSION_SCAN, SESSION_SCAN/STREAM, a path, or the address of a copy")
        add("--store", help="the directories of the store, separated by commas [default: $FULLBORE_STORE]")
        add("--remote", metavar="URL", help="where hosts without the store read: http://HOST:PORT of a station, or s3://…")
        add("--token-file", metavar="FILE", help="the token of the station; on the hosts of workers, too")
        add("--scheduler", metavar="tcp://HOST:PORT", help="a cluster of Dask; without it, processes of this host")
        add("--workers", type=_positive, help="processes of this host [default: one for each core]")
        add("--chunks", default="64MiB", help="samples in memory for each task [default: 64MiB]")
        add("--start", type=float, default=0.0, metavar="SECONDS", help="begin so long after the first sample")
        add("--length", type=float, metavar="SECONDS", help="end so long after that")
        add("--sample-rate", type=_hertz, metavar="RATE", help="for samples that do not state it: 32MHz")
        add("--skip-damaged", action="store_true", help="count data that cannot be read as not received")
        add("-o", "--output", type=Path, metavar="FILE", help=f"write {' or '.join(ENDINGS.get(name, ('.npz', '.csv')))}")
        add("--json", action="store_true", help="print JSON: progress, and the result")
        if name != "subband":
            add("--average", type=_seconds, metavar="TIME", help="the length of a row of time: 100ms [default: all]")
        if name in ("spectra", "correlate"):
            add("--channels", type=_positive, default=1024, help="spectral channels [default: 1024]")
            add("--window", choices=list(WINDOWS), default="hann", help="[default: hann]")
        if name == "correlate":
            add("--pairs", metavar="A:B,…", help="pairs of streams [default: all]")
            add("--model", metavar="FILE", help="delays: CSV with stream,time,delay_s")
            add("--sky-frequency", type=_hertz, default=0.0, metavar="RATE", help="of channel 0: takes its phase out")
        if name == "subband":
            add("--centre", type=_hertz, required=True, metavar="FREQUENCY", help="the middle of the part: 4MHz")
            add("--width", type=_hertz, required=True, metavar="FREQUENCY", help="its width: 1MHz")
    return parser


def main(words: Optional[Sequence[str]] = None) -> int:
    """Runs an analysis, and returns the exit code: 0 done, 1 data could not be read or Ctrl-C, 2 it could not run."""
    typed = list(sys.argv[1:] if words is None else words)
    options = parser().parse_args(typed)
    try:
        return _analyse(options)
    except KeyboardInterrupt:
        return _complain(options, "stopped before the end: results that were complete are written", None, FOUND)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return GOOD
    except _native.DamagedError as error:
        return _complain(options, str(error), "--skip-damaged counts such data as not received", FOUND)
    except _native.Error as error:
        return _complain(options, str(error), error.hint, REFUSED)
    except (ValueError, OSError, IndexError) as error:
        return _complain(options, str(error) or type(error).__name__, None, REFUSED)
    except Exception as error:
        if type(error).__module__.partition(".")[0] != "distributed":
            raise
        return _complain(options, f"the cluster: {error}", "its workers need fullbore[dask], and enough memory", FOUND)


def _analyse(options: argparse.Namespace) -> int:
    extra("distributed")
    _check_output(options)
    sources = list(_sources(options))
    if not sources:
        raise _native.NotFoundError("there is no stream to analyse")
    # Each stream of `subband` is a result.
    options.output_of = lambda name: _output(options, name, len(sources) > 1)
    works = _works(sources, options)
    if options.output is not None:
        options.output_of = lambda name: _output(options, name, len(works) > 1)
        for work in works:
            _refuse_existing(options.output_of(work.name).path)
    told: list[dict[str, Any]] = []

    def keep(result: Result) -> None:
        # A session has more numbers than memory: each result is written when it is complete.
        told.append({"name": result.name, **_plain(result.summary), "file": _save(result, options)})

    try:
        _run(works, options, keep)
    except BaseException:
        if options.output is not None:
            for work in works:
                options.output_of(work.name).part.unlink(missing_ok=True)
        raise
    if options.json:
        print(json.dumps({"event": "analysed", "analysis": options.analysis, "results": told}), flush=True)
    else:
        for each in told:
            print(_line(each))
    return GOOD


def _sources(options: argparse.Namespace) -> Iterator[Source]:
    names: set[str] = set()
    for text in options.scans:
        for stream in streams_of(text, _store_of(text, options), skip_damaged=options.skip_damaged, token=_token(options)):
            samples = stream.samples if options.sample_rate is None else stream.samples_at(options.sample_rate)
            rate, most = samples.sample_rate, len(samples)
            if rate is None and (options.start or options.length is not None):
                raise ValueError(f"{stream.scan}/{stream.name}: --start and --length need --sample-rate")
            first = min(most, round(options.start * (rate or 0)))
            end = most if options.length is None else min(most, first + round(options.length * (rate or 0)))
            if first >= end:
                raise ValueError(f"{stream.scan}/{stream.name} has no samples there")
            reader = samples.reader(first, end, remote=options.remote, token=_token(options))
            source = Source(stream.scan, stream.name, samples, reader)
            if source.name not in names:
                names.add(source.name)
                yield source


def _store_of(text: str, options: argparse.Namespace) -> Optional[list[Any]]:
    """The directories of the store that has a scan; None of a path or an address. The default is that of all commands."""
    if options.store:
        return list(options.store.split(","))
    if _native.is_address(text) or ("/" in text and Path(text).parent.is_dir()):
        return None
    data = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local/share"
    return (os.environ.get("FULLBORE_STORE") or str(Path(data) / "fullbore")).split(",")


def _token(options: argparse.Namespace) -> Optional[Path]:
    return None if options.token_file is None else Path(options.token_file)


def _works(sources: list[Source], options: argparse.Namespace) -> list[Work]:
    if options.analysis == "correlate":
        model = _pairs.tables_of(options)
        return [_pairs.correlate(one, other, options, model) for one, other in _pairs.pairs_of(sources, options.pairs)]
    analysis = getattr(_analyses, options.analysis)
    return [analysis(source, options) for source in sources]


def _run(works: list[Work], options: argparse.Namespace, keep: Callable[[Result], None]) -> None:
    tasks = [(work, number, task) for work in works for number, task in enumerate(work.tasks)]

    def take(at: int, part: Any) -> None:
        work, number, _ = tasks[at]
        work.take(number, part)
        if number + 1 == len(work.tasks):
            keep(work.result())
            # Its sums are not needed any more.
            work.take, work.result = _nothing, _nothing

    with connected(options.scheduler, options.workers) as client:
        shown = Progress(len(tasks), options.json)
        shown.begin(workers_of(client))
        run(client, [task for _, _, task in tasks], take, shown.tell)
        shown.end()


def _nothing(*_: Any) -> Any:
    raise AssertionError("this work is complete")


class Progress:
    """What is done, on standard error for people, and on standard output for scripts."""

    def __init__(self, tasks: int, as_json: bool) -> None:
        self.tasks, self.as_json = tasks, as_json
        self.begun = self.told = time.monotonic()
        self.shows = not as_json and sys.stderr.isatty()

    def begin(self, workers: list[dict[str, Any]]) -> None:
        """Before the first task."""
        if self.as_json:
            print(json.dumps({"event": "started", "tasks": self.tasks, "workers": workers}), flush=True)

    def tell(self, done: int) -> None:
        """After each task; it is shown five times a second at most."""
        now = time.monotonic()
        if now - self.told < 0.2 and done < self.tasks:
            return
        self.told, seconds = now, now - self.begun
        if self.as_json:
            told = {"event": "progress", "done": done, "tasks": self.tasks, "seconds": round(seconds, 3)}
            print(json.dumps(told), flush=True)
        elif self.shows:
            left = seconds * (self.tasks - done) / max(1, done)
            sys.stderr.write(f"\r{done} of {self.tasks} tasks, {seconds:.0f} s, about {left:.0f} s left \x1b[K")

    def end(self) -> None:
        """Clears the line."""
        if self.shows:
            sys.stderr.write("\r\x1b[K")


def _check_output(options: argparse.Namespace) -> None:
    endings = ENDINGS.get(options.analysis, (".npz", ".csv"))
    if options.output is None:
        if options.analysis == "subband":
            raise ValueError("the samples need a file: -o OUT.npy")
        return
    if options.output.suffix not in endings:
        raise ValueError(f"{options.output}: the ending is not {' or '.join(endings)}")
    if not options.output.absolute().parent.is_dir():
        raise ValueError(f"{options.output}: there is no directory {options.output.parent}")


def _refuse_existing(path: Path) -> None:
    if path.exists():
        raise ValueError(f"{path} exists, and is not replaced")


def _output(options: argparse.Namespace, name: str, several: bool) -> Output:
    path: Path = options.output
    if several:
        # Names of scans and streams have no character that is special in a path.
        path = path.with_name(f"{path.stem}_{name.replace('/', '_').replace(':', '-')}{path.suffix}")
    return Output(path)


def _save(result: Result, options: argparse.Namespace) -> Optional[str]:
    if options.output is None:
        return None
    output: Output = options.output_of(result.name)
    if options.output.suffix == ".npz":
        with open(output.part, "wb") as file:
            arrays: dict[str, Any] = {name: np.asarray(values) for name, values in result.arrays.items()}
            np.savez(file, **arrays)
    elif options.output.suffix == ".csv":
        with open(output.part, "w", encoding="utf-8", newline="") as table:
            writer = csv.writer(table, lineterminator="\n")
            writer.writerow(result.columns)
            writer.writerows(result.rows())
    return output.done()


def _plain(value: Any) -> Any:
    """A value as JSON has it: NaN is null."""
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, np.ndarray):
        return _plain(value.tolist())
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    if isinstance(value, np.generic):
        return _plain(value.item())
    return None if isinstance(value, float) and not np.isfinite(value) else value


def _line(told: dict[str, Any]) -> str:
    shown = [f"{key.replace('_', ' ')} {_short(value)}" for key, value in told.items() if key not in ("name", "lines")]
    return f"{told['name']}: {', '.join(shown)}"


def _short(value: Any) -> str:
    if isinstance(value, list):
        return " ".join(_short(each) for each in value[:4]) + (" …" if len(value) > 4 else "")
    return f"{value:.6g}" if isinstance(value, float) else "–" if value is None else str(value)


def _complain(options: argparse.Namespace, text: str, advice: Optional[str], code: int) -> int:
    error = text.partition("\n  ")[0]
    if options.json:
        print(json.dumps({"error": error, "advice": advice} if advice else {"error": error}), file=sys.stderr)
    else:
        print(f"fullbore: {error}" + (f"\n  {advice}" if advice else ""), file=sys.stderr)
    return code


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a positive number")
    return number


UNITS = {"hz": 1.0, "khz": 1e3, "mhz": 1e6, "ghz": 1e9, "ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}


def _hertz(text: str) -> float:
    return _with_unit(text, ("khz", "mhz", "ghz", "hz"))


def _seconds(text: str) -> float:
    return _with_unit(text, ("ns", "us", "ms", "min", "s", "h"))


def _with_unit(text: str, units: tuple[str, ...]) -> float:
    lower = text.strip().lower()
    unit = next((unit for unit in units if lower.endswith(unit)), "")
    try:
        value = float(lower[: len(lower) - len(unit)]) * UNITS.get(unit, 1.0)
    except ValueError:
        raise argparse.ArgumentTypeError(f"`{text}` is not a number with one of {', '.join(units)}") from None
    if not np.isfinite(value):
        raise argparse.ArgumentTypeError(f"`{text}` is not a finite number")
    return value


if __name__ == "__main__":
    sys.exit(main())
