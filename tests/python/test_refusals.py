"""Bad input: the message names the cause, the exit code reports it, and no partial results stay."""

import os
import re
import socket
import subprocess
import tempfile
from pathlib import Path

import pytest
import wire
from fullbore import BINARY, FOUND, PATIENCE, REFUSED, Recording, free_port, run


def tree(root):
    """Everything below `root` except a member's own identity."""
    return sorted(
        str(path.relative_to(root))
        for path in root.rglob("*")
        if path.relative_to(root).parts[0] != ".fullbore"
    )


def refused(*words, naming):
    done = run(*words, code=REFUSED)
    told = done.stderr.decode()
    assert naming.lower() in told.lower(), told
    assert "panicked" not in told and "RUST_BACKTRACE" not in told, told
    return told


# name, source, further arguments, text expected in the message
BAD_RECORDINGS = [
    ("an unknown format", "udp://127.0.0.1:{port}?format=vdiff", [], "vdiff"),
    ("an unknown parameter", "udp://127.0.0.1:{port}?formt=vdif", [], "formt"),
    ("a parameter twice", "udp://127.0.0.1:{port}?fps=1&fps=2", [], "`fps` is given twice"),
    ("an unknown scheme", "rtp://127.0.0.1:{port}", [], "rtp"),
    ("no endpoint at all", "hello", [], "hello"),
    ("an endpoint without slashes", "udp:127.0.0.1:{port}", [], "for example udp://0.0.0.0:46220"),
    ("an unknown pattern", "pattern:nope", [], "for example pattern:prbs31"),
    ("a directory", "file:/usr", [], "/usr: is a directory"),
    ("port zero", "udp://127.0.0.1:0", [], "`0` is not a port"),
    ("a port beyond the last", "udp://127.0.0.1:65536", [], "65536"),
    ("a range from high to low", "udp://127.0.0.1:5001-5000", [], "5001-5000"),
    ("a host that is no address", "udp://not an address:5000", [], "not an address"),
    ("an address of another host", "udp://203.0.113.9:{port}", [], "203.0.113.9"),
    ("an interface that is not there", "udp://127.0.0.1:{port}?interface=nope0", [], "nope0"),
    ("a frame of no bytes", "udp://127.0.0.1:{port}?frame=0", [], "`frame=0`: it is 1 to 65507 bytes"),
    ("a frame beyond a datagram", "udp://127.0.0.1:{port}?frame=70000", [], "70000"),
    ("a VDIF frame of odd length", "udp://127.0.0.1:{port}?frame=8033", [], "8033"),
    ("an absurd block", "udp://127.0.0.1:{port}?block=1TiB", [], "`block=1TiB`: a block has 64 KiB to 1 GiB"),
    ("an absurd buffer", "udp://127.0.0.1:{port}?rcvbuf=lots", [], "lots"),
    ("a sequence field of 9 bytes", "udp://127.0.0.1:{port}?format=raw&seq=0:9:le", [], "1 to 8 bytes, not 9"),
    ("threads that are none", "udp://127.0.0.1:{port}?threads=0-9999", [], "numbers from 0 to 1023"),
    ("a stream name with a slash", "udp://127.0.0.1:{port}?name=a%2Fb", [], "a/b"),
    ("a duration that is none", "udp://127.0.0.1:{port}", ["--duration", "soon"], "soon"),
    ("syncs without end", "udp://127.0.0.1:{port}", ["--sync", "0s"], "--sync 0s cannot be: it is 1ms to 1h"),
    ("syncs that never come", "udp://127.0.0.1:{port}", ["--sync", "2d"], "cannot be: it is 1ms to 1h"),
    ("no capture thread", "udp://127.0.0.1:{port}", ["--capture-threads", "0"], "--capture-threads is zero"),
    ("a core that is not there", "udp://127.0.0.1:{port}", ["--cpus", "0,1023"], "1023"),
    ("a core beyond all", "udp://127.0.0.1:{port}", ["--cpus", "99999999"], "99999999"),
    ("a chunk without a block", "udp://127.0.0.1:{port}", ["--chunk", "100kB"], "100 kB"),
    ("a chunk beyond all disks", "udp://127.0.0.1:{port}", ["--chunk", "100TB"], "100 TB"),
    ("scans without end", "udp://127.0.0.1:{port}",
     ["--scans", "4000000000", "--duration", "1s"], "4000000000"),
    ("bytes that are none", "udp://127.0.0.1:{port}", ["--bytes", "-3"], "-3"),
    ("a word nobody knows", "udp://127.0.0.1:{port}", ["--durration", "3s"], "durration"),
    ("the same port twice", "udp://127.0.0.1:{port}", ["udp://127.0.0.1:{port}"], "port {port} is given twice"),
    ("the same port under two names", "udp://127.0.0.1:{port}?name=a",
     ["udp://127.0.0.1:{port}?name=b"], "port {port} is given twice"),
]


@pytest.mark.parametrize(
    "source, words, naming", [row[1:] for row in BAD_RECORDINGS], ids=[row[0] for row in BAD_RECORDINGS]
)
def test_a_bad_recording_is_refused_by_name(source, words, naming, store):
    port = free_port()
    filled = [word.format(port=port) for word in [source, *words]]
    refused(
        "record", *filled, "--store", store, "--session", "bad", "--scan", "one",
        naming=naming.format(port=port),
    )  # fmt: skip
    assert tree(store) == []


@pytest.mark.parametrize("session, scan, naming", [
    ("bad", "../../etc", "../../etc"), ("..", "one", ".."), ("a/b", "one", "a/b"),
    ("two_parts", "one", "two_parts"), ("bad", "a_dsb", "a_dsb"), ("bad", "x" * 200, "x" * 20),
    ("", "one", "--session: a name has 1 to 63 characters"), ("bad", "nul\u00e4", "nul\u00e4"),
])  # fmt: skip
def test_a_name_that_would_leave_the_store_is_refused(session, scan, naming, store):
    words = ["--store", store, "--session", session, "--scan", scan]
    refused("record", f"udp://127.0.0.1:{free_port()}", *words, naming=naming)
    assert tree(store) == [] and tree(store.parent) == [store.name]


def test_no_stream_at_all_is_refused(store):
    refused("record", "--store", store, "--session", "bad", "--scan", "one", naming="<SOURCE>")
    assert tree(store) == []


def test_a_port_in_use_is_named(store):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        other.bind(("127.0.0.1", 0))
        port = other.getsockname()[1]
        words = ["--store", store, "--session", "bad", "--scan", "one"]
        refused("record", f"udp://127.0.0.1:{port}", *words, naming=str(port))
    assert tree(store) == []


def test_places_that_cannot_be_members_are_named(store, tmp_path):
    file = tmp_path / "file"
    file.write_text("not a directory")
    for place in (tmp_path / "nowhere", file, "/proc"):
        for members in (str(place), f"{store},{place}"):
            words = ["--store", members, "--session", "bad", "--scan", "one"]
            refused("record", f"udp://127.0.0.1:{free_port()}", *words, naming=str(place))
    assert tree(store) == [] and not (tmp_path / "nowhere").exists()


def test_an_error_tells_its_cause_once(store):
    for place, cause in (("/proc", "No such file"), ("/nowhere", "No such file"), (__file__, "not a directory")):
        words = ["--store", place, "--session", "bad", "--scan", "one"]
        told = refused("record", f"udp://127.0.0.1:{free_port()}", *words, naming=place)
        assert told.count(cause) == 1, told
    told = refused("play", "file:/nowhere/x", "--to", "udp://127.0.0.1:5000", naming="/nowhere/x")
    assert told.count("No such file") == 1, told


def test_two_directories_of_one_identity_are_no_disk_set(stores):
    run("record", f"udp://127.0.0.1:{free_port()}", "--store", stores[0], "--session", "a", "--scan",
        "b", "--duration", "10ms", code=FOUND)  # fmt: skip
    (stores[1] / ".fullbore").mkdir()
    identity = (stores[0] / ".fullbore/member.json").read_text()
    (stores[1] / ".fullbore/member.json").write_text(identity)
    words = ["--store", f"{stores[0]},{stores[1]}", "--session", "bad", "--scan", "one"]
    told = refused("record", f"udp://127.0.0.1:{free_port()}", *words, naming=str(stores[1]))
    assert str(stores[0]) in told and "one member" in told


def test_a_key_that_a_file_misspells_is_named_with_its_line(tmp_path, store):
    config = tmp_path / "c.toml"
    config.write_text(f"[record]\nstore = ['{store}']\ndurration = '3s'\n")
    told = refused("--config", config, "ls", "--store", store, naming=f"{config}, line 3")
    assert "durration" in told


def test_a_member_that_may_not_be_written_is_named():
    """As an ordinary user: root may write anywhere."""
    with tempfile.TemporaryDirectory(prefix="fullbore-") as place:
        store = Path(place) / "member0"
        store.mkdir()
        store.chmod(0o555)
        Path(place).chmod(0o755)
        words = ["record", f"udp://127.0.0.1:{free_port()}", "--store", store, "--session", "bad", "--scan", "one"]
        nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all"]
        command = [*(nobody if os.geteuid() == 0 else []), BINARY, *map(str, words)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
        assert done.returncode == REFUSED and str(store) in done.stderr and "ermission denied" in done.stderr, done
        assert list(store.iterdir()) == []


def test_a_scan_that_exists_is_never_touched(store):
    port, frames = free_port(), wire.run_of_frames(100)
    source = f"udp://127.0.0.1:{port}?format=vdif&fps=1000"
    with Recording(source, store=store) as recording:
        wire.send(frames, port)
    before = tree(store)
    words = ["--store", store, "--session", "test", "--scan", "one"]
    refused("record", source, *words, naming="test_one")
    assert tree(store) == before and recording.on_disk().bytes() == b"".join(frames)


@pytest.mark.parametrize("verb", ["verify", "info", "cat", "rm", "recover", "play"])
def test_a_scan_that_is_not_there_is_named(verb, store):
    extra = ["--to", f"udp://127.0.0.1:{free_port()}"] if verb == "play" else []
    refused(verb, "no_such", "--store", store, *extra, naming="no_such")


@pytest.mark.parametrize("address, advice", [
    ("mark6:/mnt/disk", "ls"), ("file:/x.vdif", "convert"), ("udp://127.0.0.1:5000", "record"), ("/data/r1_a", "--store"),
])  # fmt: skip
@pytest.mark.parametrize("verb", ["verify", "info", "cat", "rm", "recover", "rebuild", "protect", "mark", "ls"])
def test_what_is_no_scan_of_a_store_is_refused_as_such(verb, address, advice, tmp_path):
    extra = ["text"] if verb == "mark" else []
    told = refused(verb, address, *extra, "--store", tmp_path / "none", naming=f"`{address}` is a")
    assert "a scan of a store" in told and advice in told, told


@pytest.mark.parametrize("words, naming", [
    (["generate", "--to", "udp://127.0.0.1"], "`udp://127.0.0.1` is not a port"),
    (["generate", "--to", "tcp://127.0.0.1:5000"], "`tcp:` cannot be used"),
    (["generate", "--to", "udp://127.0.0.1:5000", "--drop", "2"], "drop is 2"),
    (["generate", "--to", "udp://127.0.0.1:5000", "--duration", "never"], "never"),
    (["generate", "--to", "udp://127.0.0.1:5000", "--start", "2500-01-01T00:00:00"], "2031"),
    (["generate", "--to", "udp://127.0.0.1:5000", "--start", "1999-12-31T23:59:59"], "1999"),
    (["generate", "--to", "udp://127.0.0.1:5000", "--rate", "0Gbit/s"], "--rate"),
    (["generate", "--to", "udp://127.0.0.1:5000", "--frames", "0"], "--frames"),
    (["generate", "--to", "udp://127.0.0.1:5000", "--drop", "0.1", "--drop-run", "0"], "--drop-run"),
    (["generate", "--to", "udp://127.0.0.1:5000", "--frames", "9", "--fps", "9", "--truth", "/dev/full"], "/dev/full"),
    (["generate", "--to", "udp://127.0.0.1:5000", "--format", "raw", "--frame", "4"], "choose another rate"),
    (["rm", "../../etc", "--store", "/usr"], "`../../etc` is a path"),
    (["rm", "a/../../etc", "--store", "/usr"], "no scan `a`"),
    (["play", "file:/nowhere/x.vdif", "--to", "udp://127.0.0.1:5000"], "/nowhere/x.vdif"),
    (["--config", "/nowhere/c.toml", "ls"], "/nowhere/c.toml"),
    (["frobnicate"], "frobnicate"),
    (["play", "file:/x", "--to", "udp://127.0.0.1:5000", "--catch-up", "inf"], "catch-up"),
    (["play", "file:/x", "--to", "udp://127.0.0.1:5000", "--stream", "a"], "--stream"),
    (["play", "file:/x", "--to", "udp://127.0.0.1:5000", "--as-recorded"], "--loop"),
    (["play", "file:/x", "--to", "udp://127.0.0.1:5000", "--fps", "0"], "--fps"),
    (["verify", "x", "--reads", "100000", "--store", "/usr"], "--reads"),
])  # fmt: skip
def test_other_bad_commands_are_refused_by_name(words, naming):
    refused(*words, naming=naming)


def test_what_standard_output_does_not_take_is_told():
    words = ["generate", "--to", f"udp://127.0.0.1:{free_port()}", "--frames", "1", "--fps", "9"]
    with open("/dev/full", "w") as full:
        done = subprocess.run([BINARY, *words], stdout=full, stderr=subprocess.PIPE, check=False)
    assert done.returncode == REFUSED and b"standard output" in done.stderr


@pytest.mark.parametrize("address", ["239.255.1.9", "[ff02::9]", "0.0.0.0"])
def test_an_interface_that_is_not_there_is_named(address, store):
    source = f"udp://{address}:{free_port()}?interface=nosuch"
    refused("record", source, "--store", store, "--session", "bad", "--scan", "one", naming="`nosuch`")


@pytest.mark.parametrize(
    "verb",
    ["", "record", "play", "verify", "ls", "info", "recover", "rebuild", "rm", "protect", "mark", "cat", "generate",
     "demo", "convert", "panda", "panda record", "panda show", "panda arm", "simulate", "simulate panda", "bench",
     "bench disk", "bench all", "bench net", "bench memory", "bench ring", "bench compare",
     "bench report", "selftest"],
)  # fmt: skip
def test_every_verb_teaches_itself(verb):
    told = run(*verb.split(), "--help", env={**os.environ, "COLUMNS": "80"}).stdout.decode()
    story, _, options = told.partition("Usage:")
    assert options and all(len(line) <= 80 for line in told.splitlines()), told
    # Examples and tables fit, so none of their lines is broken.
    broad = run(*verb.split(), "--help", env={**os.environ, "COLUMNS": "300"}).stdout.decode()
    laid_out = lambda text: [line for line in text.partition("Usage:")[0].splitlines() if line.startswith("  ")]
    assert laid_out(told) == laid_out(broad)
    for columns in (60, 80, 100):
        wrapped = run(*verb.split(), "--help", env={**os.environ, "COLUMNS": str(columns)}).stdout.decode()
        assert broken_early(wrapped.partition("Usage:")[0], columns) == [], wrapped
    listed = re.findall(r"^  [a-z]\S* .*", options.partition("Options:")[0], re.MULTILINE)
    assert not any(line.rstrip().endswith(".") for line in listed), options
    if verb in ("", "record", "play", "cat", "generate", "convert", "panda record", "simulate panda"):
        assert f"  fullbore {verb}" in story, told
    if verb in ("", "record", "play", "verify", "ls", "info", "recover", "rm", "cat", "generate", "demo", "convert",
                "panda record"):  # fmt: skip
        assert "xit code" in " ".join(story.split()), told


def broken_early(text, columns):
    """Lines of a paragraph in which the first word of the next line would have fitted too: text that is wrapped twice.
    """
    lines = text.splitlines()
    flows = [bool(line) and not line.startswith(" ") for line in lines]
    return [
        line
        for n, line in enumerate(lines[:-1])
        if flows[n] and flows[n + 1] and len(line) + 1 + len(lines[n + 1].split()[0]) <= columns
    ]


def test_text_that_is_wrapped_twice_is_seen():
    assert broken_early("all that comes, --delay\nbehind it", 80) == ["all that comes, --delay"]
    assert broken_early("a title\n\n  an example\n  another\n\nthe end", 80) == []


def test_help_has_help_of_its_own():
    assert run("help", "--help").stdout == run("help").stdout != b""


@pytest.mark.parametrize("words, example", [
    (["record", "udp://0.0.0.0:5000"], "fullbore record 'udp://0.0.0.0:46220-46235?format=vdif' --store /mnt/disk0,/mnt/disk1 --session"),
    (["play", "a_b"], "fullbore play r1234_no0001 --to udp://"),
    (["convert"], "fullbore convert file:dump.bin"),
])  # fmt: skip
def test_a_missing_argument_is_answered_with_an_example(words, example):
    assert f"For example:\n  {example}" in refused(*words, naming="required arguments")


@pytest.mark.parametrize("option", ["--duration", "--sync", "--reconnect"])
def test_a_length_of_time_that_is_none_is_answered_with_one_that_is(option):
    words = ["record", "udp://127.0.0.1:5000", "--session", "a", "--scan", "b", option, "forever"]
    assert "for example 40s" in refused(*words, naming="forever")


@pytest.mark.parametrize("source, to, naming", [
    ("store:a_b", "x.mat", "x.mat"),
    ("store:a_b", "out", "`out`"),
    ("store:a_b", "mark6:/a/b.h5", "mark6:/a/b.h5"),
    ("file:/etc/passwd", "x.sigmf", "x.sigmf"),
    ("mark6:/a/b", "x.h5", "mark6:/a/b: the input must be store:SCAN"),
    ("file:/etc/passwd", "x.h5", "/etc/passwd: this is not what a PandA's data port sends"),
])  # fmt: skip
def test_what_cannot_be_converted_is_refused_with_what_can(source, to, naming, tmp_path):
    told = subprocess.run([BINARY, "convert", source, to], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert told.returncode == REFUSED and naming in told.stderr, told.stderr
    assert to == "x.h5" or "no container that can be written: there is HDF5" in told.stderr
    assert "the server answered" not in told.stderr and list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("to", ["d.mat", "d.h5", "hdf5:d.h5", "udp://127.0.0.1:5000"])
def test_a_scan_on_a_device_is_converted_to_a_plain_file_and_nothing_else(to, tmp_path):
    told = run("convert", f"device:{tmp_path}/drive.img?scan=r1_a", to, code=REFUSED).stderr.decode()
    assert told.startswith(f"fullbore: {to}: ") and "write for example file:out.vdif" in told



def test_the_help_of_record_knows_every_parameter_of_a_source():
    told = run("record", "--help").stdout.decode()
    for parameter in ("format=vdif", "rcvbuf=64MiB", "threads=split", "xml=false", "arm=true"):
        assert re.search(rf"^  {parameter} ", told, re.MULTILINE), parameter
    unknown = refused("record", "udp://0.0.0.0:5000?nosuch=1", "--session", "a", "--scan", "b", naming="nosuch")
    known = re.search(r"they are ([a-z_, ]+)", unknown).group(1).split(", ")
    assert len(known) > 10 and all(f"\n  {name}=" in told for name in known), known


@pytest.mark.parametrize("words, code", [
    (["ls"], REFUSED), (["verify", "a_b"], REFUSED), (["cat", "a_b"], REFUSED), (["rm", "a_b", "--yes"], REFUSED),
    (["recover", "a_b"], REFUSED), (["play", "a_b", "--to", "udp://127.0.0.1:5000"], REFUSED),
    (["record", "udp://127.0.0.1:5000", "--session", "a", "--scan", "b"], REFUSED),
])  # fmt: skip
@pytest.mark.parametrize("full", ["/dev/full", None], ids=["full", "closed"])
def test_a_standard_error_that_takes_nothing_changes_no_exit_code(words, code, full):
    where = f"2>{full}" if full else "2>&-"
    line = ["sh", "-c", f'exec "$@" {where}', "sh", BINARY, *words, "--store", "/nowhere"]
    done = subprocess.run(line, capture_output=True, timeout=60, check=False)
    assert done.returncode == code, done


def test_a_store_that_is_empty_is_told_to_nobody_without_a_panic(store):
    run("record", f"udp://127.0.0.1:{free_port()}", "--store", store, "--session", "a", "--scan", "b",
        "--duration", "10ms", code=FOUND)  # fmt: skip
    for words in (["recover", "--all"], ["rebuild", "--all"]):
        line = ["sh", "-c", 'exec "$@" >/dev/full', "sh", BINARY, *words, "--store", store]
        done = subprocess.run(line, capture_output=True, timeout=60, check=False)
        assert done.returncode == REFUSED and b"standard output" in done.stderr, done


@pytest.mark.parametrize("further", [["--json"], []], ids=["events", "account"])
def test_a_recording_whose_events_are_not_taken_is_made_and_says_so(further, store):
    words = ["record", f"udp://127.0.0.1:{free_port()}?format=raw", "--store", store, "--session", "a", "--scan", "b",
             "--duration", "50ms", *further]  # fmt: skip
    with open("/dev/full", "w") as full:
        done = subprocess.run([BINARY, *map(str, words)], stdout=full, stderr=subprocess.PIPE, timeout=60, check=False)
    assert done.returncode == FOUND and b"on standard output" in done.stderr, done
    assert (store / "a_b/.fullbore/account.json").exists()


def test_a_member_whose_path_is_no_text_is_refused(tmp_path):
    odd = os.fsencode(tmp_path) + b"/n\xffu"
    os.mkdir(odd)
    for further in ([], ["--new-member", odd]):
        line = [BINARY, "record", f"udp://127.0.0.1:{free_port()}", "--store", odd, "--session", "a", "--scan", "b", *further]
        done = subprocess.run(line, capture_output=True, timeout=60, check=False)
        assert done.returncode == REFUSED and b"not UTF-8" in done.stderr and b"panicked" not in done.stderr, done
    # Nor if only the whole path shows it.
    line = [BINARY, "record", f"udp://127.0.0.1:{free_port()}", "--store", ".", "--session", "a", "--scan", "b"]
    done = subprocess.run(line, capture_output=True, timeout=60, check=False, cwd=odd)
    assert done.returncode == REFUSED and b"not UTF-8" in done.stderr and b"panicked" not in done.stderr, done
    assert os.listdir(odd) == []


RECORD = ["record", "udp://127.0.0.1:5000", "--session", "a", "--scan", "b"]


@pytest.mark.parametrize("words", [
    [*RECORD, "--duration", "-1s"], [*RECORD, "--bytes", "-1"], [*RECORD, "--clock-drift", "-1"], [*RECORD, "--sync", "-.5s"],
    ["play", "a_b", "--to", "udp://127.0.0.1:5000", "--factor", "-1"], ["info", "a_b", "--gaps", "-1"],
])  # fmt: skip
def test_a_value_below_zero_is_refused_as_a_value(words, store):
    wrong, option = words[-1], words[-2]
    told = refused(*words, "--store", store, naming=wrong)
    assert "tip:" not in told and option in told, told


def test_a_bad_value_of_a_file_is_blamed_on_the_file(tmp_path, store):
    config = tmp_path / "c.toml"
    for text, option in (("duration = 1", "--duration"), ("duration = '0s'", "--duration"), ("scans = 0", "--scans")):
        config.write_text(f"[record]\nsession = 'a'\n{text}\n")
        words = ["--config", config, "record", "udp://127.0.0.1:5000", "--scan", "b", "--store", store]
        told = refused(*words, naming=f"{option} stands in {config}, line 3")
        assert "--session stands" not in told
    told = refused(*words[:-1], store / "none", "--scans", "2", naming="--duration or --bytes")
    assert str(config) not in told, "what is typed is not blamed on the file"


@pytest.mark.parametrize("text, key, why", [
    ("bytes = 'lots'", "bytes", "lots"), ("place = 'on'", "place", "auto"), ("start = 1979-05-27", "start", "UTC"),
    ("store = {}", "store", "a text, a number, or a list"), ("arm = 'yes'", "arm", "boolean"),
    ("cpus = [1, 'x']", "cpus", "`x`"), ("keep = 'all'", "keep", "500GB"),
])  # fmt: skip
def test_a_value_that_a_file_cannot_have_is_named_with_key_and_line(text, key, why, tmp_path, store):
    config = tmp_path / "c.toml"
    config.write_text(f"[record]\nsession = 'a'\n\n{text}\n")
    words = ["--config", config, "record", "udp://127.0.0.1:5000", "--scan", "b"]
    told = refused(*words, naming=f"--{key} stands in {config}, line 4")
    assert why in told and tree(store) == [], told


def test_what_neither_the_command_line_nor_the_file_has_is_asked_for(tmp_path, store):
    config = tmp_path / "c.toml"
    config.write_text(f"[record]\nsession = 'a'\nstore = '{store}'\n")
    told = refused("--config", config, "record", "udp://127.0.0.1:5000", naming="required arguments")
    assert "--scan <NAME>" in told and "--session <NAME>\n" not in told and "For example:\n  fullbore record" in told
    config.write_text("[record]\nscan = 'a'\nscans = 2\nduration = '1s'\nschedule = 'x.csv'\n")
    told = refused("--config", config, "record", "udp://127.0.0.1:5000", naming="--scan cannot be used with --schedule")
    assert f"--schedule stands in {config}, line 5" in told


def test_a_target_that_is_typed_takes_the_place_of_that_of_a_file(tmp_path, store):
    config, file = tmp_path / "c.toml", tmp_path / "x.raw"
    source = "pattern:counter?bytes=64KiB"
    config.write_text(f"[record]\nsource = '{source}'\nstore = '{store}'\nkeep = '2d'\nchunk = '32MB'\n")
    run("--config", config, "record", "--to", f"file:{file}")
    assert file.stat().st_size == 65536 and tree(store) == []
    config.write_text(f"[record]\nsource = '{source}'\nto = 'file:{tmp_path}/y.raw'\nsession = 'a'\nscan = 'b'\n")
    run("--config", config, "record", "--store", store)
    assert (store / "a_b").is_dir() and not (tmp_path / "y.raw").exists()


@pytest.mark.parametrize("option, why", [
    (["--lead", "3s"], "it is for --schedule"), (["--station", "Wz"], "it is for --schedule"),
    (["--arm"], "it is for a PandA"), (["--reconnect", "3s"], "it is for a PandA"),
])  # fmt: skip
def test_an_option_that_would_change_nothing_is_refused(option, why, store):
    refused(*RECORD, *option, "--store", store, naming=f"{option[0]}: {why}")
    assert tree(store) == []


@pytest.mark.parametrize("verb", [["ls"], ["verify", "--all"], RECORD])
def test_a_member_that_is_given_twice_is_refused(verb, store):
    refused(*verb, "--store", f"{store},{store}/", naming="is given twice")


def test_a_rate_of_nothing_is_refused_before_anything_is_begun(tmp_path):
    told = refused("generate", "--to", "udp://127.0.0.1:5000", "--rate", "1bit/s", naming="less than a byte a second")
    assert "--rate 0" not in told
    for rate in ("0", "1bit/s"):
        words = ["demo", "--rate", rate, "--directory", tmp_path / "demo"]
        refused(*words, naming="less than a byte a second")
    assert not (tmp_path / "demo").exists()


@pytest.mark.parametrize("verb", [["disk", "{store}", "--seconds", "0"], ["disk", "{store}", "--run-time", "0s"],
                                  ["memory", "--time", "0s"], ["ring", "--time", "0s"]])  # fmt: skip
def test_nothing_is_measured_in_no_time(verb, store):
    refused("bench", *[word.format(store=store) for word in verb], naming="nothing is measured in no time")


def test_the_name_of_a_session_is_told_what_it_may_hold(store):
    told = refused("record", "udp://127.0.0.1:5000", "--session", "s x", "--scan", "b", "--store", store, naming="`s x` contains")
    assert "`_`" not in told, told
