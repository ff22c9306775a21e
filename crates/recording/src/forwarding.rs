//! What a recording sends on: begun with it, reported once a second, finished after it, and kept in the manifests of its
//! scans.

use std::path::PathBuf;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use fullbore_core::hint::with_causes;
use fullbore_core::manifest::Forwarded;
use fullbore_core::name::ScanName;
use fullbore_engine::forward::{ForwardCounts, ForwardError, Forwarder};
use fullbore_engine::recorder::{Event, EventHandler, RecordingConfig};
use fullbore_engine::sink::SinkConfig;
use fullbore_store::markers;

/// The interval of reports.
const REPORT: Duration = Duration::from_secs(1);

/// The forwarder of a recording, if it has one.
pub(crate) struct Forwarding {
    forwarder: Option<Forwarder>,
    reported: Instant,
    /// The members of each store.
    stores: Vec<Vec<PathBuf>>,
    /// The scans that are sealed.
    sealed: Vec<ScanName>,
}

impl Forwarding {
    /// Starts to send on what will be recorded.
    pub fn start(config: &RecordingConfig) -> Result<Self, ForwardError> {
        let forwarder = match config.forward.as_slice() {
            [] => None,
            targets => Some(Forwarder::start(&config.taps, targets)?),
        };
        let stores = config.sinks.iter().filter_map(|sink| match sink {
            SinkConfig::Store(store) => Some(store.members.clone()),
            _ => None,
        });
        let (stores, sealed) = (stores.collect(), Vec::new());
        Ok(Self { forwarder, reported: Instant::now(), stores, sealed })
    }

    /// Learns what a scan contains, and reports once a second.
    pub fn after(&mut self, event: &Event, tell: &mut EventHandler<'_>) {
        let Some(forwarder) = &self.forwarder else { return };
        match event {
            Event::Sealed(sealed) => {
                forwarder.sealed(sealed);
                self.sealed.push(sealed.manifest.scan.clone());
            }
            Event::Progress(_) if self.reported.elapsed() >= REPORT => {
                self.reported = Instant::now();
                tell(&Event::Forwarded { over: false, streams: forwarder.counts() });
            }
            _ => {}
        }
    }

    /// Sends the rest, for a few seconds at most, and keeps the counts in the manifests. Returns the report of the end.
    pub fn finish(self) -> Vec<Event> {
        let Some(forwarder) = self.forwarder else { return Vec::new() };
        let streams = forwarder.finish();
        let mut events = Vec::new();
        for members in &self.stores {
            events.extend(self.sealed.iter().filter_map(|scan| keep(members, scan, &streams)));
        }
        events.push(Event::Forwarded { over: true, streams });
        events
    }
}

/// Puts the counts of a scan into its manifests. Returns a note if they are not there.
fn keep(members: &[PathBuf], scan: &ScanName, counts: &[ForwardCounts]) -> Option<Event> {
    let name = scan.to_string();
    let of_scan = counts.iter().filter(|it| it.scan == name);
    let forwarded: Vec<Forwarded> = of_scan.map(kept).collect();
    let amended =
        markers::amend(members, scan, |manifest| manifest.forwarded.clone_from(&forwarded));
    let why = match amended {
        Ok(true) => return None,
        Ok(false) => "another process has it".to_owned(),
        Err(error) => with_causes(&error),
    };
    let text = format!("the manifest of {scan} does not say what was sent on: {why}");
    Some(Event::Note { text })
}

fn kept(counts: &ForwardCounts) -> Forwarded {
    let ForwardCounts { stream, to, sent, skipped, refused, reconnects, .. } = counts.clone();
    Forwarded { stream, to, sent, skipped, refused, reconnects }
}

/// Forwarders that send the rest of their scans while the next scan is armed.
#[derive(Default)]
pub(crate) struct Finishing(Vec<JoinHandle<Vec<Event>>>);

impl Finishing {
    /// Finishes this one on a thread of its own.
    pub fn add(&mut self, forwarding: Forwarding) {
        if forwarding.forwarder.is_some() {
            self.0.push(std::thread::spawn(|| forwarding.finish()));
        }
    }

    /// The reports of those that have finished.
    pub fn reports(&mut self) -> Vec<Event> {
        let finished = self.0.extract_if(.., |thread| thread.is_finished());
        finished.filter_map(|thread| thread.join().ok()).flatten().collect()
    }

    /// Waits for all of them, and returns their reports.
    pub fn wait(&mut self) -> Vec<Event> {
        self.0.drain(..).filter_map(|thread| thread.join().ok()).flatten().collect()
    }
}
