#!/usr/bin/env python3
"""The PandABlocks client's own HDF5 pipeline, with the settings that its command line does not have.

    panda_client.py HOST FILE [--scaled] [--flush SECONDS]

Without options it does what `pandablocks hdf HOST FILE --num 1 --arm` does.
"""

import argparse
import asyncio
import itertools
import sys

from pandablocks.asyncio import AsyncioClient
from pandablocks.commands import Arm
from pandablocks.hdf import create_default_pipeline, stop_pipeline
from pandablocks.responses import EndData, EndReason, ReadyData


async def record(host: str, file: str, scaled: bool, flush: float) -> EndData:
    pipeline = create_default_pipeline(itertools.repeat(file), {})
    try:
        async with AsyncioClient(host) as client:
            async for data in client.data(scaled=scaled, flush_period=flush):
                pipeline[0].queue.put_nowait(data)
                if isinstance(data, ReadyData):
                    await client.send(Arm())
                if isinstance(data, EndData):
                    return data
    finally:
        stop_pipeline(pipeline)
    sys.exit("the PandA closed the connection")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("host")
    parser.add_argument("file")
    parser.add_argument("--scaled", action="store_true", help="have the PandA scale")
    parser.add_argument("--flush", type=float, default=1, help="seconds")
    args = parser.parse_args()
    end = asyncio.run(record(args.host, args.file, args.scaled, args.flush))
    print(end.samples, end.reason.value)
    sys.exit(0 if end.reason in (EndReason.OK, EndReason.DISARMED) else 1)


if __name__ == "__main__":
    main()
