"""The placement and priority of threads, and the memory: the recording reports the same as the kernel."""

import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import wire
from fullbore import (
    AS_SEALED,
    BINARY,
    REFUSED,
    Recording,
    accounts,
    balanced,
    free_port,
    run,
)

MIB = 1 << 20
CPUS = sorted(os.sched_getaffinity(0))
POLICIES = {0: "other", 1: "fifo", 2: "round-robin", 3: "batch", 5: "idle", 6: "deadline"}

root = pytest.mark.skipif(os.geteuid() != 0, reason="to take privileges away, one must have them")
two_cpus = pytest.mark.skipif(len(CPUS) < 2, reason="one processor is no choice")

# As an ordinary user without any capabilities.
NOBODY = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all"]
# In a separate session: if sessions are scheduled as groups, only this one is changed.
ALONE = ["setsid"]


@pytest.fixture
def open_store():
    """A member with write permission for every user."""
    place = Path(tempfile.mkdtemp(prefix="fullbore-"))
    place.chmod(0o777)
    yield place
    shutil.rmtree(place, ignore_errors=True)


def limited(wish):
    """A command that runs another as an ordinary user with a raised limit, if that is allowed here."""
    command = ["prlimit", wish, *NOBODY]
    if (done := subprocess.run([*command, "true"], capture_output=True, text=True)).returncode:
        pytest.skip(f"the limit cannot be raised here: {done.stderr.strip()}")
    return command


def free_huge_pages():
    return int(re.search(r"HugePages_Free:\s+(\d+)", Path("/proc/meminfo").read_text())[1])


def more_than_was_set_aside():
    """More block memory than the huge pages that are reserved on this machine."""
    return f"{2 * (free_huge_pages() + 16)}MiB"


def ordinary(told):
    assert told["pages"]["reserved_bytes"] == 0, told["pages"]
    return told


def record(store, *options, wrap=(), frames=300, buffer="32MiB", query=""):
    """Records a few frames, all of them proven; returns the state of its threads and memory during the recording."""
    port = free_port()
    source = f"udp://127.0.0.1:{port}?format=vdif&fps=500{query}"
    recording = Recording(source, store=store, options=["--buffer", buffer, *options], wrap=wrap)
    with recording:
        wire.send(wire.run_of_frames(frames, 500), port)
        recording.kernel = threads_of(recording.process.pid)
        recording.map = Path(f"/proc/{recording.process.pid}/smaps").read_text()
        recording.group = group_of(recording.process.pid)
    (account,) = accounts(recording.sealed(AS_SEALED)).values()
    assert balanced(account)["verdict"] == "proven"
    return recording


def threads_of(pid):
    """Name, processors, policy, priority and niceness of each thread, by its number."""
    told = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError):
            stat = (task / "stat").read_text()
            name = stat[stat.index("(") + 1 : stat.rindex(")")]
            fields = stat[stat.rindex(")") + 2 :].split()
            allowed = re.search(r"Cpus_allowed_list:\s*(\S*)", (task / "status").read_text())[1]
            told[int(task.name)] = {
                "name": name,
                "cpus": spans(allowed),
                "nice": int(fields[16]),
                "priority": int(fields[37]),
                "policy": POLICIES[int(fields[38])],
            }
    return told


def spans(text):
    """`0-2,5`"""
    ends = [[int(end) for end in span.split("-")] for span in text.split(",")]
    return [cpu for span in ends for cpu in range(span[0], span[-1] + 1)]


def sessions_are_groups():
    with contextlib.suppress(OSError):
        return Path("/proc/sys/kernel/sched_autogroup_enabled").read_text().strip() == "1"
    return False


def group_of(pid):
    """The niceness of its session's group; none for a process without a session group."""
    if not sessions_are_groups():
        return None
    told = re.search(r"nice (-?\d+)", Path(f"/proc/{pid}/autogroup").read_text())
    return told and int(told[1])


def armed(recording):
    """The report at arming: every thread as the kernel has it."""
    told = recording.wait("armed")
    assert told["threads"][0]["thread"] == "capture0" and len(told["threads"]) == 2
    for thread in told["threads"]:
        kernel = recording.kernel[thread["id"]]
        assert kernel["name"] == thread["thread"][:15]
        assert kernel["cpus"] == thread["cpus"]
        assert (kernel["policy"], kernel["priority"]) == (thread["policy"], thread["priority"])
        assert kernel["nice"] == thread["nice"]
    return told


def notes(recording, kind="warning"):
    return [event["text"] for event in recording.events if event["event"] == kind]


@two_cpus
def test_threads_stay_where_they_are_put(store):
    first, second = CPUS[:2]
    recording = record(store, "--place", f"capture={second},writers={first}")
    told = armed(recording)
    assert [thread["cpus"] for thread in told["threads"]] == [[second], [first]]
    assert [seat["cpus"] for seat in told["placement"]["captures"]] == [[second]]
    assert told["placement"]["pinned"]
    # The helper thread of a writer runs on its core; no other thread is moved.
    others = {it["name"]: it["cpus"] for number, it in recording.kernel.items()}
    assert others["fb-files"] == [first] and others[Path(BINARY).name[:15]] == CPUS, others


def test_a_machine_with_few_cores_is_left_to_the_scheduler_and_told_so(store):
    wrap = ["taskset", "-c", ",".join(map(str, CPUS[:2]))]
    told = armed(record(store, wrap=wrap))
    assert not told["placement"]["pinned"] and not told["placement"]["apart"]
    assert "threads are not pinned to cores" in told["placement"]["why"]
    assert all(thread["cpus"] == CPUS[:2] for thread in told["threads"])
    # The first priority on a core that other threads need would be worse than waiting.
    assert all(thread["policy"] == "other" for thread in told["threads"])


def test_capture_has_a_core_alone_where_the_machine_has_cores_to_spare(store):
    """Six cores are enough. With fewer, threads are left to the scheduler. `place/tests.rs` has machines of other
    sizes."""
    told = armed(record(store, "--capture-threads", "1"))
    placement, (capture, writer) = told["placement"], told["threads"]
    if placement["pinned"]:
        assert len(capture["cpus"]) == 1 and not set(capture["cpus"]) & set(writer["cpus"])
    else:
        assert placement["why"] and capture["cpus"] == writer["cpus"] == CPUS, told
        # On a larger machine other processes may use cores, and the message says so.
        assert len(CPUS) < 6 or "cores" in placement["why"], placement


def test_off_leaves_everything_to_the_scheduler(store):
    recording = record(store, "--place", "off", "--priority", "off")
    told = armed(recording)
    assert all(it["cpus"] == CPUS and it["policy"] == "other" and it["nice"] == 0 for it in told["threads"])


@root
def test_capture_gets_more_than_its_share_where_it_cannot_be_first(store):
    recording = record(store, "--place", "off", wrap=ALONE)
    told = armed(recording)
    capture, writer = told["threads"]
    assert (capture["policy"], capture["nice"], writer["nice"]) == ("other", -10, 0)
    # Where sessions are groups, that counts within the session only. The recorder says so, and leaves the session alone.
    said = [text for text in notes(recording, "note") if "autogroup" in text]
    assert len(said) == sessions_are_groups(), recording.events
    assert recording.group in (None, 0)


@root
def test_a_priority_that_is_asked_for_takes_effect(store):
    told = armed(record(store, "--priority", "fifo:7"))
    capture, writer = told["threads"]
    assert (capture["policy"], capture["priority"]) == ("fifo", 7)
    assert (writer["policy"], writer["priority"]) == ("fifo", 4)
    assert not any(thread["refused"] for thread in told["threads"])


@root
def test_a_priority_is_not_handed_down_to_what_a_writer_starts(store):
    recording = record(store, "--priority", "fifo:7")
    first = {it["name"] for it in recording.kernel.values() if it["policy"] == "fifo"}
    assert len(first) == 2 and "capture0" in first, first


@root
def test_who_may_not_have_a_priority_is_told_how_to_allow_it_and_records(open_store):
    recording = record(open_store, "--priority", "fifo:7", wrap=["prlimit", "--rtprio=0:0", "--nice=0:0", *NOBODY])
    told = armed(recording)
    capture = told["threads"][0]
    assert (capture["policy"], capture["nice"]) == ("other", 0)
    assert any("SCHED_FIFO at 7" in why for why in capture["refused"]), capture
    (warning,) = [text for text in notes(recording) if "--priority" in text]
    for way in ("CAP_SYS_NICE", "ulimit -r 7", "LimitRTPRIO=7"):
        assert way in warning


def nobody_with(capability):
    """As an ordinary user who has this capability alone."""
    return [*NOBODY[:-1], f"--inh-caps=-all,+{capability}", f"--ambient-caps=+{capability}"]


@root
@pytest.mark.parametrize("by", ["limit", "capability"])
def test_a_limit_or_a_capability_is_enough_to_be_first(by, open_store):
    if by == "limit":
        wrap = limited("--rtprio=10:10")
    else:
        wrap = nobody_with("sys_nice")
    told = armed(record(open_store, "--priority", "fifo:7", wrap=wrap))
    assert [thread["priority"] for thread in told["threads"]] == [7, 4]


@root
def test_what_is_refused_without_having_been_asked_for_is_told_and_is_no_warning(open_store):
    recording = record(open_store, wrap=["prlimit", "--rtprio=0:0", "--nice=0:0", *NOBODY])
    told = armed(recording)
    assert told["threads"][0]["refused"] and told["threads"][0]["nice"] == 0
    assert not [text for text in notes(recording) if "nice" in text]


@pytest.mark.parametrize(
    "words, told",
    [
        (["--place", "2,3"], "capture=2-3,writers=4-7"),
        (["--place", "disks=1"], "capture=2-3,writers=4-7"),
        (["--place", "off", "--cpus", "0"], "cannot be used with"),
        (["--place", "capture=8000"], "core 8000 is not available to this process"),
        (["--priority", "fifo:99"], "from 1 to 49"),
        (["--priority", "high"], "auto, off, or fifo:N"),
    ],
)
def test_what_cannot_be_meant_is_refused(words, told, store):
    source = f"udp://127.0.0.1:{free_port()}?format=vdif"
    done = run("record", source, "--store", store, "--session", "s", "--scan", "a", *words, code=REFUSED)
    assert told in done.stderr.decode(), done.stderr


@two_cpus
def test_a_file_says_the_same_words(store, tmp_path):
    first, second = CPUS[:2]
    words = f'[record]\nplace = "capture={second},writers={first}"\npriority = "off"\n'
    (tmp_path / "record.toml").write_text(words)
    told = armed(record(store, "--config", tmp_path / "record.toml"))
    assert [thread["cpus"] for thread in told["threads"]] == [[second], [first]]


# Memory.


def huge_bytes_of(map_text):
    """Bytes in reserved huge pages, from the process's map."""
    return sum(int(kb) * 1024 for kb in re.findall(r"Private_Hugetlb:\s+(\d+) kB", map_text))


def transparent_bytes_of(map_text):
    return sum(int(kb) * 1024 for kb in re.findall(r"AnonHugePages:\s+(\d+) kB", map_text))


@root
def test_a_small_limit_of_locked_memory_is_coped_with_and_told(open_store):
    wrap = ["prlimit", f"--memlock={64 << 10}:{64 << 10}", *NOBODY]
    recording = record(open_store, wrap=wrap, buffer=more_than_was_set_aside())
    told = ordinary(armed(recording))
    assert not told["locked"] and told["pages"]["locked_bytes"] == told["pages"]["reserved_bytes"]
    said = notes(recording, "note")
    limit = [text for text in said if "the limit of locked memory is" in text]
    assert any("not locked" in text for text in limit), said
    # If locking is refused, memory is touched all the same.
    assert any("with each write" in text for text in limit), said
    assert all("ulimit -l" in text and "LimitMEMLOCK" in text for text in limit)


@root
@pytest.mark.parametrize("by", ["limit", "capability"])
def test_memory_is_locked_where_a_limit_or_a_capability_allows_it(by, open_store):
    buffer, query = more_than_was_set_aside(), ""
    if by == "capability":
        wrap = ["prlimit", "--memlock=65536:65536", *nobody_with("ipc_lock")]
    elif free_huge_pages():
        wrap = limited(f"--memlock={1 << 30}:{1 << 30}")
    else:
        # Within the default limit of most systems, which root without CAP_SYS_RESOURCE cannot raise.
        wrap, buffer, query = limited(f"--memlock={8 * MIB}:{8 * MIB}"), "4MiB", "&frame=1056&block=64KiB"
    recording = record(open_store, wrap=wrap, buffer=buffer, query=query)
    told = ordinary(armed(recording))
    assert told["locked"] and told["pages"]["locked_bytes"] == told["pages"]["bytes"] == told["pool_bytes"]
    assert not [text for text in notes(recording, "note") if "locked memory" in text]


@contextlib.contextmanager
def set_aside(pages):
    """Reserves huge pages for the test, if the machine has contiguous memory."""
    setting = Path("/proc/sys/vm/nr_hugepages")
    before = setting.read_text()
    try:
        try:
            setting.write_text(str(int(before) + pages))
        except OSError as error:
            pytest.skip(f"no huge pages can be set aside here: {error}")
        if int(setting.read_text()) < int(before) + pages:
            pytest.skip("memory is in too small pieces")
        yield
    finally:
        setting.write_text(before)


@pytest.mark.alone
@root
def test_huge_pages_that_were_set_aside_are_used(store):
    with set_aside(16):
        recording = record(store)
        told = armed(recording)
    assert told["pages"] == {
        "bytes": 32 * MIB, "reserved_bytes": 32 * MIB, "transparent_bytes": 0, "locked_bytes": 32 * MIB,
    }  # fmt: skip
    assert huge_bytes_of(recording.map) == 32 * MIB


@pytest.mark.alone
@root
def test_too_few_of_them_are_left_to_others(store):
    with set_aside(3):
        recording = record(store, buffer=more_than_was_set_aside())
        told = armed(recording)
    assert told["pages"]["reserved_bytes"] == 0 == huge_bytes_of(recording.map)
    assert told["pages"]["transparent_bytes"] <= transparent_bytes_of(recording.map)


def test_memory_without_huge_pages_is_told_with_what_helps(store):
    # PR_SET_THP_DISABLE, which has the effect of switching off transparent huge pages.
    without = "import ctypes, os, sys; ctypes.CDLL(None).prctl(41, 1, 0, 0, 0); os.execv(sys.argv[1], sys.argv[1:])"
    recording = record(store, wrap=[sys.executable, "-c", without], buffer=more_than_was_set_aside())
    told = armed(recording)
    assert ordinary(told)["pages"]["transparent_bytes"] == 0
    (warning,) = [text for text in notes(recording) if "huge pages" in text]
    assert f"vm.nr_hugepages={told['pages']['bytes'] // (2 * MIB)}" in warning
