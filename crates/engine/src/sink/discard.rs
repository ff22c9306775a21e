//! A sink that stores nothing: for looking at a source through taps, with its account.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use fullbore_core::account::Account;
use fullbore_core::manifest::{self, Manifest, State};
use fullbore_linux::ring::{WriterCommand, WriterEvent};
use fullbore_linux::sys::memory::Region;
use fullbore_linux::writer_thread::WriterThread;
use uuid::Uuid;

use super::{ScanSink, Sink, Target, WriterLink};
use crate::error::RecordError;

/// The path in events and manifests.
pub(crate) const NOWHERE: &str = "(discarded)";

/// No file of a stream has an end.
const CHUNK_BYTES: u64 = 64 << 30;

/// The longest sleep while no command arrives.
const NAP: Duration = Duration::from_millis(20);

/// The sink.
pub struct DiscardSink {
    targets: [Target; 1],
}

impl Default for DiscardSink {
    fn default() -> Self {
        Self::new()
    }
}

impl DiscardSink {
    /// A sink that stores nothing.
    pub fn new() -> Self {
        let target =
            Target { path: PathBuf::from(NOWHERE), buffered: true, device: None, span: None };
        Self { targets: [target] }
    }
}

impl Sink for DiscardSink {
    fn targets(&self) -> &[Target] {
        &self.targets
    }

    fn chunk_bytes(&self) -> u64 {
        CHUNK_BYTES
    }

    fn start(
        &mut self,
        mut links: Vec<WriterLink>,
        _memory: &[Arc<Region>],
        _pool_bytes: u64,
    ) -> Result<Vec<WriterThread>, RecordError> {
        let link = links.pop().expect("there is one target");
        link.spawn("discard", run)
    }

    fn plan_scan(&self, manifest: &mut Manifest, failures: &[Option<String>]) -> Box<dyn ScanSink> {
        manifest.members = vec![manifest::Member {
            uuid: Uuid::nil(),
            path: PathBuf::from(NOWHERE),
            failure: failures[0].clone(),
            buffered: true,
        }];
        Box::new(DiscardedScan)
    }

    fn free_bytes(&self, _writer: usize) -> u64 {
        u64::MAX
    }
}

struct DiscardedScan;

impl ScanSink for DiscardedScan {
    fn seal(
        &mut self,
        manifest: &mut Manifest,
        _accounts: &BTreeMap<u16, Account>,
        state: State,
    ) -> Result<(), RecordError> {
        manifest.state = state;
        Ok(())
    }
}

/// Returns every block until the capture threads have ended.
fn run(mut link: WriterLink) {
    while !link.is_over() {
        let mut idle = true;
        for queue in 0..link.queues.len() {
            while let Ok(command) = link.queues[queue].commands.pop() {
                idle = false;
                obey(&mut link, queue, command);
            }
        }
        if idle {
            link.rest(NAP);
        }
    }
}

fn obey(link: &mut WriterLink, queue: usize, command: WriterCommand) {
    match command {
        WriterCommand::Write(filled) => {
            link.report(WriterEvent::Durable {
                stream_ref: filled.stream_ref.clone(),
                sequences: vec![filled.sequence],
                bytes: filled.bytes.into(),
            });
            link.written(queue, filled);
        }
        WriterCommand::Finish { stream_ref, .. } => {
            link.report(WriterEvent::Finished { member: 0, stream_ref });
        }
    }
}
