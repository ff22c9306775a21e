//! What a recording sends on: begun with it, reported once a second, and finished after it.

use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use fullbore_engine::forward::{ForwardError, Forwarder};
use fullbore_engine::recorder::{Event, EventHandler, RecordingConfig};

/// The interval of reports.
const REPORT: Duration = Duration::from_secs(1);

/// The forwarder of a recording, if it has one.
pub(crate) struct Forwarding {
    forwarder: Option<Forwarder>,
    reported: Instant,
}

impl Forwarding {
    /// Starts to send on what will be recorded.
    pub fn start(config: &RecordingConfig) -> Result<Self, ForwardError> {
        let forwarder = match config.forward.as_slice() {
            [] => None,
            targets => Some(Forwarder::start(&config.taps, targets)?),
        };
        Ok(Self { forwarder, reported: Instant::now() })
    }

    /// Learns what a scan contains, and reports once a second.
    pub fn after(&mut self, event: &Event, tell: &mut EventHandler<'_>) {
        let Some(forwarder) = &self.forwarder else { return };
        match event {
            Event::Sealed(sealed) => forwarder.sealed(sealed),
            Event::Progress(_) if self.reported.elapsed() >= REPORT => {
                self.reported = Instant::now();
                tell(&Event::Forwarded { over: false, streams: forwarder.counts() });
            }
            _ => {}
        }
    }

    /// Sends the rest, for a few seconds at most. Returns the report of the end.
    pub fn finish(self) -> Option<Event> {
        let streams = self.forwarder?.finish();
        Some(Event::Forwarded { over: true, streams })
    }
}

/// Forwarders that send the rest of their scans while the next scan is armed.
#[derive(Default)]
pub(crate) struct Finishing(Vec<JoinHandle<Option<Event>>>);

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
        finished.filter_map(|thread| thread.join().ok()?).collect()
    }

    /// Waits for all of them, and returns their reports.
    pub fn wait(&mut self) -> Vec<Event> {
        self.0.drain(..).filter_map(|thread| thread.join().ok()?).collect()
    }
}
