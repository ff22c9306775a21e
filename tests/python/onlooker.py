"""A browser with the pages Now and Stream open, as a process that can be killed: it reads the state and live spectra, and
connects again whenever it is cut off.

    python onlooker.py PORT HOST TOKEN SEEN

PORT is where it connects, HOST the name that the daemon knows. The numbers of states and rows go to the file SEEN.
"""

import http.client
import json
import os
import socket
import sys
import threading
import time

from websockets.exceptions import WebSocketException
from websockets.sync.client import connect

PORT, HOST, TOKEN, SEEN = int(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4]
HEADERS = {"Authorization": f"Bearer {TOKEN}"}
PAUSE = 0.05  # seconds until it connects again

counts = {"states": 0, "rows": 0}
shown = None  # the recording whose spectra are wanted


def see(what):
    counts[what] += 1
    with open(f"{SEEN}.part", "w") as file:
        json.dump(counts, file)
    os.replace(f"{SEEN}.part", SEEN)


def states():
    """The page Now."""
    global shown
    connection = http.client.HTTPConnection("127.0.0.1", PORT, timeout=5)
    try:
        connection.request("GET", "/api/v1/events?hz=5", headers={**HEADERS, "Host": HOST})
        answer = connection.getresponse()
        while line := answer.readline():
            if line.startswith(b"data: "):
                running = [it for it in json.loads(line[6:])["recordings"] if it["phase"] == "recording"]
                shown = running[0] if running else None
                see("states")
    finally:
        connection.close()


def spectra():
    """The page Stream, of the newest recording."""
    if shown is None:
        return
    stream = shown["progress"]["streams"][0]["name"]
    address = f"ws://{HOST}/api/v1/recordings/{shown['id']}/spectra?stream={stream}&channels=256&rows=25"
    with socket.create_connection(("127.0.0.1", PORT), timeout=5) as near:
        with connect(address, sock=near, additional_headers=HEADERS, open_timeout=5) as client:
            for message in client:
                if isinstance(message, bytes):
                    see("rows")


def again_and_again(look):
    while True:
        try:
            look()
        except (OSError, http.client.HTTPException, WebSocketException, ValueError):
            pass
        time.sleep(PAUSE)


threading.Thread(target=again_and_again, args=(spectra,), daemon=True).start()
again_and_again(states)
