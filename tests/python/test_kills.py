"""Kills of either end and cuts of the network while a scan is sent: what the far end has is not sent again.

`FULLBORE_KILLS` events hit one transfer, one per 40 MB on average. The bytes are those of TCP in both directions: TLS, the
handshakes of every new connection, and all messages included.
"""

import filecmp
import os
import random
import subprocess
import time

import pytest
from fullbore import AS_SEALED, GOOD, PATIENCE, Recording, Scan, free_ports, generate_command, run
from sites import Relay, Site, members, pair
from test_transfer import record

EVENTS = int(os.environ.get("FULLBORE_KILLS", 6))
SEED = int(os.environ.get("FULLBORE_SEED", 1))
KINDS = os.environ.get("FULLBORE_KINDS", "sender,receiver,network").split(",")
RATE = os.environ.get("FULLBORE_RATE", "200Mbit/s")
BYTES_PER_EVENT = 40_000_000
FRAME_BYTES, FPS = 8032, 6_000

# TLS has 22 bytes per record of 16 KiB, a block a record of 128 bytes in the index. Everything else is the price of events.
MOST = 1.02


@pytest.fixture
def station(tmp_path):
    return Site(tmp_path, "station", [tmp_path / "disk0", tmp_path / "disk1"])


@pytest.fixture
def correlator(tmp_path):
    return Site(tmp_path, "correlator", [tmp_path / "far0", tmp_path / "far1"])


class Sender:
    """A `fullbore send` that can be killed and started again. It writes to files, so that nobody needs to read along."""

    def __init__(self, site, scan, to):
        self.command = site.command("send", scan, to, "--json", "--rate", RATE)
        self.site, self.log = site, site.keys.parent / "sender.log"
        self.process = None

    def start(self):
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(self.command, env=self.site.env, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def kill(self):
        self.process.kill()
        self.process.wait(PATIENCE)

    def is_done(self):
        return self.process.poll() is not None


def wait_until(holds, what):
    """Nothing may take longer than a test has patience, whatever was killed before."""
    end = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < end, f"no {what} within {PATIENCE} s"
        time.sleep(0.01)


def recorded(site, bytes_, block):
    """A scan of two streams of about that many bytes in blocks of that size."""
    ports = free_ports(2)
    span = f"udp://127.0.0.1:{ports[0]}-{ports[1]}"
    with Recording(f"{span}?format=vdif&fps={FPS}&block={block}", store=site.store) as recording:
        frames = bytes_ // (2 * FRAME_BYTES)
        sends = generate_command(span, frame=FRAME_BYTES, fps=FPS, frames=frames)
        subprocess.run(sends, stdout=subprocess.DEVNULL, check=True, timeout=PATIENCE + frames / FPS)
        recording.stop(AS_SEALED)
    return recording.scan


def is_the_same(here, there, scan):
    """The copy has the same files and the same account, is proven as the original is, and verifies."""
    one, other = Scan(scan, here.store), Scan(scan, there.store)
    assert one.streams.keys() == other.streams.keys()
    for name, chunks in one.streams.items():
        copies = {path.name: path for path in other.streams[name]}
        assert copies.keys() == {path.name for path in chunks}
        assert all(filecmp.cmp(path, copies[path.name], shallow=False) for path in chunks)
        side = lambda files: files[0].parent / ".fullbore" / "account.json"
        assert filecmp.cmp(side(chunks), side(other.streams[name]), shallow=False)
    for member in there.store:
        assert not list(member.glob("*/.fullbore/held")), "a complete scan holds no beginnings of blocks"
    run("verify", scan, "--store", members(there.store))


@pytest.mark.slow
@pytest.mark.parametrize("block", ["4MiB", "64KiB"])
def test_kills_and_cuts_of_either_end_send_hardly_a_byte_twice(block, station, correlator):
    chance, bytes_ = random.Random(f"{SEED} {block}"), EVENTS * BYTES_PER_EVENT
    scan = recorded(station, bytes_, block)
    far = correlator.listen()
    far.start()
    with Relay(far.port) as relay:
        invitation = pair(correlator, station, f"127.0.0.1:{relay.port}")
        station.run("send", record(station, scan="tiny", ports=1, frames=10), invitation)
        sending = Sender(station, scan, f"fullbore://127.0.0.1:{relay.port}")
        before, told = relay.bytes(), []
        sending.start()
        for place in sorted(chance.uniform(0, 0.97 * bytes_) for _ in range(EVENTS)):
            # Places close to each other hit the handshakes and the exchange after the event before.
            wait_until(lambda: relay.bytes() - before >= place or sending.is_done(), f"byte {place:.0f}")
            assert not sending.is_done(), sending.log.read_text()
            time.sleep(chance.uniform(0, 0.05))
            kind = chance.choice(KINDS)
            told.append((kind, relay.bytes() - before))
            match kind:
                case "sender":
                    sending.kill()
                    sending.start()
                case "receiver":
                    far.kill()
                    far.start()
                case "network":
                    relay.away = chance.random() < 0.5
                    relay.cut()
                    time.sleep(chance.uniform(0, 0.3))
                    relay.away = False
        sending.process.wait(PATIENCE + bytes_ / 1_000_000)
        assert sending.process.returncode == GOOD, sending.log.read_text()
        carried = relay.bytes() - before
    far.__exit__()
    is_the_same(station, correlator, scan)
    print(f"{block}: {EVENTS} events ({', '.join(KINDS)}), {bytes_} bytes, {carried} carried: {carried / bytes_:.5f},")
    print(f"{(carried - bytes_) / EVENTS / 1000:.1f} kB per event")
    assert bytes_ < carried <= MOST * bytes_, (SEED, block, carried, bytes_, told)
