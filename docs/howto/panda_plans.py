"""Two bluesky plans for a PandA that fullbore records, and a command line that runs them.

    python panda_plans.py 172.23.252.201 /data fly --events 20000
    python panda_plans.py 172.23.252.201 /data step --events 10 --samples 100 --tiled http://127.0.0.1:8000
"""

import argparse
from pathlib import Path

import bluesky.plan_stubs as bps
import bluesky.preprocessors as bpp
from bluesky import RunEngine
from ophyd_async.core import DetectorTrigger, StaticPathProvider, TriggerInfo, UUIDFilenameProvider, init_devices

from fullbore.ophyd import PandaDetector


def fly(panda, events, samples=1, move=None):
    """Records `events` times `samples` samples in one acquisition, while `move` moves something."""

    @bpp.stage_decorator([panda])
    @bpp.run_decorator(md={"plan_name": "fly", "events": events})
    def inner():
        # Arms the PandA. Its own blocks start and end the acquisition.
        info = TriggerInfo(trigger=DetectorTrigger.EXTERNAL_LEVEL, number_of_events=events, collections_per_event=samples)
        yield from bps.prepare(panda, info, wait=True)
        yield from bps.declare_stream(panda, name="main", collect=True)
        yield from bps.kickoff(panda, wait=True)
        if move is not None:
            yield from move()
        yield from bps.collect_while_completing([panda], [panda], flush_period=0.5, stream_name="main")

    return (yield from inner())


def step(panda, events, samples=1, move=None):
    """At each of `events` points: `move` moves something, and one acquisition of `samples` samples is recorded."""

    @bpp.stage_decorator([panda])
    @bpp.run_decorator(md={"plan_name": "step", "events": events})
    def inner():
        yield from bps.prepare(panda, TriggerInfo(collections_per_event=samples), wait=True)
        for point in range(events):
            if move is not None:
                yield from move(point)
            yield from bps.trigger_and_read([panda], name="main")

    return (yield from inner())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("panda", help="the address of the PandA, or panda://HOST:PORT?data=PORT")
    parser.add_argument("directory", type=Path, help="the directory of the HDF5 files")
    parser.add_argument("plan", choices=["fly", "step"])
    parser.add_argument("--events", type=int, default=10, help="the number of events (default: %(default)s)")
    parser.add_argument("--samples", type=int, default=1, help="the samples of each event (default: %(default)s)")
    parser.add_argument("--tiled", metavar="URL", help="a tiled server that is to keep the documents")
    args = parser.parse_args()

    engine = RunEngine()
    if args.tiled:
        from bluesky.callbacks.tiled_writer import TiledWriter
        from tiled.client import from_uri

        engine.subscribe(TiledWriter(from_uri(args.tiled)))
    with init_devices():
        panda = PandaDetector(args.panda, StaticPathProvider(UUIDFilenameProvider(), args.directory.resolve()), name="panda")

    def plan():
        (yield from {"fly": fly, "step": step}[args.plan](panda, args.events, args.samples))
        print((yield from bps.rd(panda.headline)))

    engine(plan(), lambda name, document: print(f"{name} {document['uid']}") if name in ("start", "stop") else None)


if __name__ == "__main__":
    main()
