//! What a listener told: transfers that run, the last events, and counts since it started.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use fullbore_core::hint::with_causes;
use fullbore_linux::clock::Clock;
use fullbore_time::Tai;
use fullbore_transfer::error::TransferError;
use fullbore_transfer::server::ServerEvent;
use serde::Serialize;

use super::events::ListenerEvent;

/// Events that are remembered.
const MOST_EVENTS: usize = 100;

/// Transfers that are shown at once. The listener admits fewer.
const MOST_OPEN: usize = 512;

/// A rate is measured over at least this time, and the newest measurement counts as much as all before.
const MEASURED: Duration = Duration::from_millis(500);

/// Where a listener listens, and the key of this site.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Listening {
    /// The address.
    pub address: SocketAddr,
    /// The key.
    pub key: String,
}

/// A transfer with another site that began there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Arrival {
    /// The other site.
    pub peer: String,
    /// The scan.
    pub scan: String,
    /// True if the other site fetches it from here.
    pub fetched: bool,
    /// Bytes that arrived here, or that are durable there.
    pub done_bytes: u64,
    /// Bytes of the scan so far.
    pub bytes: u64,
    /// Bytes per second.
    pub rate: u64,
    /// Seconds until it is complete at this rate.
    pub eta_seconds: Option<u64>,
    /// Why a scan that is fetched pauses.
    pub reason: Option<String>,
}

/// Counts since the listener started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ReceiveCounts {
    /// Bytes of blocks that arrived.
    pub received_bytes: u64,
    /// Scans that are complete here.
    pub landed_scans: u64,
    /// Scans that other sites fetched.
    pub fetched_scans: u64,
    /// Transfers that ended early.
    pub failed: u64,
    /// Connections that were refused.
    pub refused: u64,
}

/// An event of the listener, and its time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Timed {
    /// The time.
    pub time: Tai,
    /// The event.
    #[serde(flatten)]
    pub event: ListenerEvent,
}

/// What the listener does.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ReceiveState {
    /// Its address.
    pub address: String,
    /// The key of this site.
    pub key: String,
    /// Why it has ended, if it has.
    pub problem: Option<String>,
    /// Transfers that run.
    pub open: Vec<Arrival>,
    /// Counts since it started.
    #[serde(flatten)]
    pub counts: ReceiveCounts,
}

/// What the listener told.
#[derive(Debug, Default)]
pub struct Arrivals(Mutex<Told>);

#[derive(Debug, Default)]
struct Told {
    listening: Option<Listening>,
    problem: Option<String>,
    open: BTreeMap<(String, String), Measured>,
    events: VecDeque<Timed>,
    counts: ReceiveCounts,
}

#[derive(Debug)]
struct Measured {
    arrival: Arrival,
    /// The bytes of the last measurement, and its time.
    before: (Instant, u64),
    /// The rate has been measured.
    known: bool,
}

impl Arrivals {
    /// The listener listens.
    pub fn listens(&self, listening: Listening) {
        self.lock().listening = Some(listening);
    }

    /// The listener has ended with an error.
    pub fn failed(&self, error: &TransferError) {
        self.lock().problem = Some(with_causes(error));
    }

    /// Takes an event.
    pub fn take(&self, event: &ServerEvent, now: Instant) {
        let mut told = self.lock();
        match event {
            ServerEvent::Receiving { peer, state } => {
                let scan = state.scan.to_string();
                let before = told.progress(now, peer, scan, false, (state.bytes, state.expected));
                told.counts.received_bytes += state.bytes.saturating_sub(before);
            }
            ServerEvent::Sending { peer, state } => {
                let scan = state.scan.to_string();
                let bytes = (state.progress.durable_bytes, state.progress.bytes);
                told.progress(now, peer, scan.clone(), true, bytes);
                if let Some(open) = told.open.get_mut(&(peer.clone(), scan)) {
                    use fullbore_transfer::governor::Allowance::{Go, Pause};
                    open.arrival.reason = match &state.allowance {
                        Pause(reason) => Some(reason.to_string()),
                        Go(_) => None,
                    };
                }
            }
            ServerEvent::Received { peer, scan, carried_bytes, .. } => {
                let before = told.ends(peer, &scan.to_string());
                told.counts.received_bytes += carried_bytes.saturating_sub(before);
                told.counts.landed_scans += 1;
            }
            ServerEvent::Sent { peer, scan, .. } => {
                told.ends(peer, &scan.to_string());
                told.counts.fetched_scans += 1;
            }
            ServerEvent::Failed { peer, scan, .. } => {
                if let Some(scan) = scan {
                    told.ends(peer, &scan.to_string());
                }
                told.counts.failed += 1;
            }
            ServerEvent::Refused { .. } => told.counts.refused += 1,
            ServerEvent::Connected { .. } | ServerEvent::Begun { .. } => {}
        }
        if let Some(event) = ListenerEvent::of(event) {
            if told.events.len() == MOST_EVENTS {
                told.events.pop_front();
            }
            told.events.push_back(Timed { time: Clock::new().now(), event });
        }
    }

    /// What the listener does. None if there is none.
    pub fn state(&self) -> Option<ReceiveState> {
        let told = self.lock();
        let Listening { address, key } = told.listening.clone()?;
        Some(ReceiveState {
            address: address.to_string(),
            key,
            problem: told.problem.clone(),
            open: told.open.values().map(|it| it.arrival.clone()).collect(),
            counts: told.counts,
        })
    }

    /// The last events: the newest last.
    pub fn events(&self) -> Vec<Timed> {
        self.lock().events.iter().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, Told> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Told {
    /// Takes the progress of a transfer. Returns the bytes that were known before.
    fn progress(
        &mut self,
        now: Instant,
        peer: &str,
        scan: String,
        fetched: bool,
        (done_bytes, bytes): (u64, u64),
    ) -> u64 {
        let key = (peer.to_owned(), scan);
        if self.open.len() >= MOST_OPEN && !self.open.contains_key(&key) {
            return done_bytes;
        }
        let (peer, scan) = key.clone();
        let open = self.open.entry(key).or_insert_with(|| Measured {
            arrival: Arrival {
                peer,
                scan,
                fetched,
                done_bytes: 0,
                bytes,
                rate: 0,
                eta_seconds: None,
                reason: None,
            },
            before: (now, done_bytes),
            known: false,
        });
        let known = open.arrival.done_bytes;
        // A second transfer of the same scan takes the place of one whose connection is lost, and counts from 0.
        let known = if done_bytes < known { 0 } else { known };
        (open.arrival.done_bytes, open.arrival.bytes) = (done_bytes, bytes);
        open.measure(now);
        known
    }

    /// A transfer is over. Returns the bytes that were known.
    fn ends(&mut self, peer: &str, scan: &str) -> u64 {
        let open = self.open.remove(&(peer.to_owned(), scan.to_owned()));
        open.map_or(0, |it| it.arrival.done_bytes)
    }
}

impl Measured {
    fn measure(&mut self, now: Instant) {
        let ((then, before), arrival) = (self.before, &mut self.arrival);
        let elapsed = now.saturating_duration_since(then);
        if elapsed >= MEASURED {
            let new = arrival.done_bytes.saturating_sub(before) as f64 / elapsed.as_secs_f64();
            let mean = if self.known { (arrival.rate as f64 + new) / 2.0 } else { new };
            (arrival.rate, self.known) = (mean as u64, true);
            self.before = (now, arrival.done_bytes);
        }
        let left = arrival.bytes.saturating_sub(arrival.done_bytes);
        arrival.eta_seconds = left.checked_div(arrival.rate);
    }
}

#[cfg(test)]
mod tests {
    use fullbore_core::name::ScanName;
    use fullbore_transfer::receive::Receiving;

    use super::*;

    fn receiving(bytes: u64) -> ServerEvent {
        let scan: ScanName = "r1_a".parse().unwrap();
        ServerEvent::Receiving {
            peer: "far".into(),
            state: Receiving { scan, bytes, expected: 1000 },
        }
    }

    fn listening() -> Arrivals {
        let arrivals = Arrivals::default();
        let address = "127.0.0.1:4780".parse().unwrap();
        arrivals.listens(Listening { address, key: "k".into() });
        arrivals
    }

    #[test]
    fn bytes_are_counted_once_until_the_scan_has_landed() {
        let (arrivals, begun) = (listening(), Instant::now());
        for (bytes, seconds) in [(0, 0), (100, 1), (300, 2), (300, 2)] {
            arrivals.take(&receiving(bytes), begun + Duration::from_secs(seconds));
        }
        let state = arrivals.state().unwrap();
        let open = &state.open[0];
        assert_eq!((open.done_bytes, open.bytes, open.rate), (300, 1000, 150));
        assert_eq!(open.eta_seconds, Some(4));
        assert_eq!(state.counts.received_bytes, 300);
        let received = ServerEvent::Received {
            peer: "far".into(),
            scan: "r1_a".parse().unwrap(),
            bytes: 1000,
            carried_bytes: 450,
            time: Duration::from_secs(3),
        };
        arrivals.take(&received, begun);
        let state = arrivals.state().unwrap();
        assert!(state.open.is_empty());
        assert_eq!((state.counts.received_bytes, state.counts.landed_scans), (450, 1));
        let events = serde_json::to_value(arrivals.events()).unwrap();
        assert_eq!(events[0]["event"], "received");
    }

    #[test]
    fn a_transfer_that_begins_again_counts_from_its_own_beginning() {
        let (arrivals, now) = (listening(), Instant::now());
        for bytes in [200, 50, 80] {
            arrivals.take(&receiving(bytes), now);
        }
        let failed = ServerEvent::Failed {
            peer: "far".into(),
            scan: "r1_a".parse().ok(),
            why: "cut".into(),
        };
        arrivals.take(&failed, now);
        let state = arrivals.state().unwrap();
        assert_eq!((state.counts.received_bytes, state.counts.failed), (280, 1));
        assert!(state.open.is_empty());
    }

    #[test]
    fn events_are_bounded() {
        let arrivals = listening();
        let address = "192.0.2.1:5".parse().unwrap();
        for number in 0..3 * MOST_EVENTS {
            let refused = ServerEvent::Refused { address, why: number.to_string() };
            arrivals.take(&refused, Instant::now());
        }
        let events = arrivals.events();
        assert_eq!(events.len(), MOST_EVENTS);
        assert!(
            matches!(&events[MOST_EVENTS - 1].event, ListenerEvent::Refused { why, .. } if why == "299")
        );
        assert_eq!(arrivals.state().unwrap().counts.refused, 300);
    }

    #[test]
    fn without_a_listener_there_is_no_state() {
        assert!(Arrivals::default().state().is_none());
    }
}
