"""Work on a cluster of Dask: tasks in, results out in their order, with few of them in memory."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Optional

from . import _native
from ._extras import extra
from ._place import Place, missing
from .dask import near

# Tasks for each thread of the cluster that are submitted and not taken: workers never wait for the next one.
AHEAD = 4

# How often a task may lose its worker.
LOST_WORKERS = 5


@dataclass(frozen=True)
class Task:
    """A call, and the places that it reads."""

    call: Callable[..., Any]
    arguments: tuple[Any, ...]
    places: tuple[Place, ...]


@contextmanager
def connected(scheduler: Optional[str], workers: Optional[int]) -> Iterator[Any]:
    """A client of the cluster at an address, else of processes of this host that end with it: one for each core."""
    distributed, config = extra("distributed"), extra("dask").config
    settings = {"distributed.scheduler.allowed-failures": LOST_WORKERS, "distributed.admin.log-format": "%(message)s"}
    if scheduler is not None:
        with distributed.Client(scheduler, timeout="10s", set_as_default=False) as client:
            yield client
        return
    with config.set(settings):
        local = distributed.LocalCluster(
            n_workers=workers or len(os.sched_getaffinity(0)), threads_per_worker=1, dashboard_address=None, silence_logs=50
        )
        with local, distributed.Client(local, set_as_default=False) as client:
            yield client


def run(
    client: Any, tasks: Sequence[Task], take: Callable[[int, Any], None], tell: Callable[[int], None] = lambda done: None
) -> None:
    """Runs tasks, and gives each result to `take` in the order of tasks.

    A task runs on a worker whose host has the files, if there is one. If a worker dies, its tasks run again elsewhere.
    """
    wanted = where(client, tasks)
    threads = sum(client.nthreads().values())
    results = extra("distributed").as_completed(loop=client.loop)
    numbers: dict[Any, int] = {}
    done: dict[int, Any] = {}
    taken, submitted = 0, 0
    while taken < len(tasks):
        # The window bounds what waits for its turn.
        while submitted < min(len(tasks), taken + AHEAD * max(1, threads)):
            task = tasks[submitted]
            workers = wanted[task.places]
            # A worker that takes the place of a dead one has another address, so others are allowed.
            chosen: dict[str, Any] = {} if workers is None else {"workers": workers, "allow_other_workers": True}
            future = client.submit(task.call, *task.arguments, pure=False, **chosen)
            numbers[future] = submitted
            results.add(future)
            submitted += 1
        future = next(results)
        number = numbers.pop(future)
        done[number] = future.result()
        future.release()
        while taken in done:
            take(taken, done.pop(taken))
            taken += 1
        tell(taken + len(done))


def where(client: Any, tasks: Sequence[Task]) -> dict[tuple[Place, ...], Optional[list[str]]]:
    """The workers that have all files of tasks; None if any worker is as good. A task that none can run is an error."""
    client.wait_for_workers(1, timeout=60)
    here = near(client, [place for task in tasks for place in task.places])
    all_workers = client.nthreads()
    found: dict[tuple[Place, ...], Optional[list[str]]] = {}
    for places in dict.fromkeys(task.places for task in tasks):
        workers = [worker for worker in here[places[0]] if all(worker in here[place] for place in places)]
        for place in places:
            if not here[place] and place.address is None:
                raise missing(place)
        if not workers and not all(place.address for place in places):
            raise _native.NotFoundError("no worker has the files of both streams\n  name a copy with --remote")
        everywhere = len(workers) == len(all_workers)
        found[places] = None if everywhere or not workers else workers
    return found


def workers_of(client: Any) -> list[dict[str, Any]]:
    """The address and the process of each worker."""
    pids: dict[str, int] = client.run(os.getpid)
    return [{"address": address, "pid": pid} for address, pid in pids.items()]
