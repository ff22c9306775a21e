//! Copies kept scans from memory to the store, on a thread of its own: the pieces go on meanwhile.

use std::io;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use fullbore_care::remove;
use fullbore_core::hint::with_causes;
use fullbore_core::manifest::State;
use fullbore_core::name::ScanName;
use fullbore_store::inventory::Inventory;
use fullbore_store::landing::{Landing, LandingError, Origin};
use fullbore_store::{Member, markers, read};
use fullbore_transfer::outgoing::Outgoing;

/// Attempts to copy a scan.
const ATTEMPTS: usize = 3;

/// The pause between two attempts.
const PAUSE: Duration = Duration::from_secs(2);

/// The interval of syncs.
const ROUND: Duration = Duration::from_millis(250);

/// Bytes after which a sync begins before its time.
const ROUND_BYTES: u64 = 256 << 20;

/// The result of a copy.
#[derive(Debug)]
pub struct Copied {
    /// The scan.
    pub scan: ScanName,
    /// Its bytes, or the reason for which it stays in memory.
    pub copied: Result<u64, String>,
}

/// The thread that copies.
#[derive(Debug)]
pub struct Copier {
    scans: Sender<ScanName>,
    copied: Receiver<Copied>,
    thread: JoinHandle<()>,
}

impl Copier {
    /// Starts the thread: it copies from the members in memory to those of the store, and removes what is copied.
    ///
    /// # Errors
    ///
    /// The thread cannot be started.
    pub fn start(memory: Vec<PathBuf>, store: Vec<PathBuf>) -> io::Result<Self> {
        let (scans, wanted) = channel::<ScanName>();
        let (tell, copied) = channel();
        let thread = std::thread::Builder::new().name("keep".into()).spawn(move || {
            for scan in wanted {
                let done = copy_again(&memory, &scan, &store);
                let done = done.and_then(|bytes| {
                    // It is in the store, whatever becomes of its memory.
                    remove::remove(&memory, &scan).map_err(|error| with_causes(&error))?;
                    Ok(bytes)
                });
                // The receiver may be gone; the work is done all the same.
                let _ = tell.send(Copied { scan, copied: done });
            }
        })?;
        Ok(Self { scans, copied, thread })
    }

    /// Lets a scan be copied after those before.
    pub fn add(&self, scan: ScanName) {
        // A thread that failed is reported at the end.
        let _ = self.scans.send(scan);
    }

    /// The scans that were copied since the last call.
    pub fn done(&self) -> Vec<Copied> {
        self.copied.try_iter().collect()
    }

    /// Waits until all scans are copied.
    pub fn finish(self) -> Vec<Copied> {
        let Self { scans, copied, thread } = self;
        drop(scans);
        let done = copied.iter().collect();
        // What it did not copy stays in memory, and is found there.
        let _ = thread.join();
        done
    }
}

/// Copies a scan; a member of the store may be full or slow for a moment.
fn copy_again(memory: &[PathBuf], scan: &ScanName, store: &[PathBuf]) -> Result<u64, String> {
    let mut attempt = 1;
    loop {
        match copy(memory, scan, store) {
            Err(_) if attempt < ATTEMPTS => {
                attempt += 1;
                std::thread::sleep(PAUSE);
            }
            result => return result,
        }
    }
}

/// Copies a sealed scan. Blocks that an earlier attempt has made durable are not written again.
fn copy(memory: &[PathBuf], scan: &ScanName, store: &[PathBuf]) -> Result<u64, String> {
    let from = Inventory::take(memory, scan).map_err(|error| with_causes(&error))?;
    let bytes = from.manifest.streams.iter().map(|stream| stream.bytes).sum();
    if let Ok(there) = Inventory::take(store, scan)
        && there.manifest.uuid == from.manifest.uuid
        && there.manifest.state != State::Recording
        && there.manifest.copied.is_none()
    {
        return Ok(bytes);
    }
    let members = store.iter().map(|path| Member::open(path));
    let members = members.collect::<Result<Vec<_>, _>>().map_err(|error| with_causes(&error))?;
    let outgoing = Outgoing::open(memory, scan).map_err(|error| with_causes(&error))?;
    let news = outgoing.look().map_err(|error| with_causes(&error))?;
    // A place that is not a host; it goes as soon as the copy is complete.
    let origin = Origin { host: from.manifest.host.clone(), key: "00".repeat(32) };
    let landing = match Landing::begin(&members, &outgoing.manifest(), &origin, bytes) {
        Ok(landing) => Some(landing),
        Err(LandingError::Complete { .. }) => None,
        Err(error) => return Err(with_causes(&error)),
    };
    if let Some(landing) = landing {
        write(&outgoing, &landing, news.blocks.iter().map(|(block, _)| *block))?;
        let sealed = landing.seal(&outgoing.manifest(), &outgoing.accounts(), &outgoing.records());
        let sealed = sealed.map_err(|error| with_causes(&error))?;
        if sealed.digest != outgoing.digest(&[]) {
            return Err("the copy differs from what is in memory".to_owned());
        }
    }
    // It is no copy of another host's scan.
    let amended = markers::amend(store, scan, |manifest| manifest.copied = None);
    amended.map_err(|error| with_causes(&error))?;
    Ok(bytes)
}

fn write(
    outgoing: &Outgoing,
    landing: &Landing,
    blocks: impl Iterator<Item = (u16, u64)>,
) -> Result<(), String> {
    let durable = landing.durable();
    let is_new = |(stream, sequence): &(u16, u64)| {
        durable.get(stream).is_none_or(|blocks| !blocks.contains(*sequence))
    };
    let memory = read::pool(1, outgoing.block_bytes()).map_err(|error| with_causes(&error));
    let mut memory = memory?.take().ok_or("there is no memory for a block")?;
    let mut round = Instant::now();
    for block in blocks.filter(is_new) {
        let source = outgoing.fetch(block, &mut memory).map_err(|error| error.to_string())?;
        landing.check(&source.records).map_err(|error| with_causes(&error))?;
        landing.write(&source.records, &mut memory).map_err(|error| with_causes(&error))?;
        if round.elapsed() >= ROUND || landing.fresh_bytes() >= ROUND_BYTES {
            landing.sync().map_err(|error| with_causes(&error))?;
            round = Instant::now();
        }
    }
    Ok(())
}
