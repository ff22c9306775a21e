//! The stored scans, kept in memory: their names always, and more of those that a client asks about.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use fullbore_core::endpoint::UdpSource;
use fullbore_core::hint::with_causes;
use fullbore_core::manifest::Format;
use fullbore_core::name::ScanName;
use fullbore_formats::vdif::Mode;
use fullbore_store::catalogue;
use fullbore_store::reader::{Scan, StoredStream};
use fullbore_vsi::file_facts::{self, END_BYTES};
use fullbore_vsi::station::{Facts, ScanFacts, StoredScan};

/// Time after which the scans are listed again, because other programs record and remove too.
const LIST_AGAIN: Duration = Duration::from_secs(60);

/// Time for which what is known of a scan is told without a look at it.
const CURRENT_FOR: Duration = Duration::from_secs(60);

/// The same for a scan that could not be read.
const FAILED_FOR: Duration = Duration::from_secs(3);

/// Scans whose facts are kept.
const MOST_KNOWN: usize = 64;

/// Scans that are read at once.
const MOST_READING: usize = 4;

/// The scans. Clones are handles of the same.
#[derive(Clone, Debug)]
pub(super) struct Index(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    members: Vec<PathBuf>,
    state: Mutex<State>,
    asked: Condvar,
}

#[derive(Debug, Default)]
struct State {
    scans: Arc<Vec<StoredScan>>,
    /// Those that were added since the last listing began.
    added: Vec<StoredScan>,
    is_asked: bool,
    facts: BTreeMap<String, (Instant, Facts)>,
}

impl State {
    /// Takes a listing. A scan that ended while it was made may not be in it.
    fn listed(&mut self, mut scans: Vec<StoredScan>) {
        self.added.iter().for_each(|it| add_to(&mut scans, it.clone()));
        self.scans = Arc::new(scans);
    }
}

impl Index {
    /// Lists the scans on a thread, now and whenever they may have changed.
    pub(super) fn open(members: Vec<PathBuf>) -> io::Result<Self> {
        let (state, asked) = (Mutex::default(), Condvar::new());
        let index = Self(Arc::new(Inner { members, state, asked }));
        let inner = Arc::downgrade(&index.0);
        thread::Builder::new().name("vsi-scans".into()).spawn(move || keep(&inner))?;
        Ok(index)
    }

    /// The scans in the order in which they began.
    pub(super) fn scans(&self) -> Arc<Vec<StoredScan>> {
        self.lock().scans.clone()
    }

    /// Adds a scan that was just recorded, and lists all again.
    pub(super) fn add(&self, scan: StoredScan) {
        let mut state = self.lock();
        state.facts.remove(&scan.name);
        add_to(Arc::make_mut(&mut state.scans), scan.clone());
        state.added.push(scan);
        state.is_asked = true;
        self.0.asked.notify_all();
    }

    /// What is known of a scan, or of one stream of it by the name of its directory.
    pub(super) fn facts(&self, name: &str) -> Facts {
        let scan = name.to_owned();
        self.known(name, move |members| read(members, &scan))
    }

    /// What the ends of a file tell.
    pub(super) fn file_facts(&self, path: PathBuf) -> Facts {
        // No scan has a name with a slash.
        self.known(&format!("file/{}", path.display()), move |_| read_file(&path))
    }

    /// What is known under a name. If it is nothing current, a thread begins to read it.
    fn known(
        &self,
        name: &str,
        read: impl FnOnce(&[PathBuf]) -> Result<ScanFacts, String> + Send + 'static,
    ) -> Facts {
        let mut state = self.lock();
        if let Some((at, facts)) = state.facts.get(name) {
            let current = match facts {
                Facts::Known(_) => at.elapsed() < CURRENT_FOR,
                Facts::Failed(_) => at.elapsed() < FAILED_FOR,
                Facts::Reading => true,
            };
            if current {
                return facts.clone();
            }
        }
        let is_reading = |it: &(Instant, Facts)| it.1 == Facts::Reading;
        if state.facts.values().filter(|it| is_reading(it)).count() >= MOST_READING {
            return Facts::Reading;
        }
        if state.facts.len() >= MOST_KNOWN {
            state.facts.retain(|_, it| it.1 == Facts::Reading);
        }
        state.facts.insert(name.to_owned(), (Instant::now(), Facts::Reading));
        let (index, key) = (self.clone(), name.to_owned());
        let read = move || {
            let facts = read(&index.0.members).map_or_else(Facts::Failed, Facts::Known);
            index.lock().facts.insert(key, (Instant::now(), facts));
        };
        match thread::Builder::new().name("vsi-scan".into()).spawn(read) {
            Ok(_) => Facts::Reading,
            Err(error) => {
                state.facts.remove(name);
                Facts::Failed(error.to_string())
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.0.state)
    }
}

fn add_to(scans: &mut Vec<StoredScan>, scan: StoredScan) {
    if scans.iter().all(|it| it.name != scan.name) {
        scans.push(scan);
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Lists the scans until nobody holds the index.
fn keep(inner: &Weak<Inner>) {
    while let Some(inner) = inner.upgrade() {
        {
            let mut state = lock(&inner.state);
            state.is_asked = false;
            state.added.clear();
        }
        if let Ok(listed) = catalogue::list(&inner.members) {
            let mut entries = listed.entries;
            entries.retain(|it| it.name.parse::<ScanName>().is_ok());
            entries.sort_by(|one, other| (one.start, &one.name).cmp(&(other.start, &other.name)));
            let scan = |it: catalogue::Entry| StoredScan { name: it.name, bytes: it.bytes };
            lock(&inner.state).listed(entries.into_iter().map(scan).collect());
        }
        // A store in which nothing was recorded yet cannot be listed, and has no scans.
        let until = Instant::now() + LIST_AGAIN;
        let mut state = lock(&inner.state);
        while !state.is_asked && Instant::now() < until && Arc::strong_count(&inner) > 1 {
            let waited = inner.asked.wait_timeout(state, Duration::from_millis(500));
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// Reads a scan.
fn read(members: &[PathBuf], name: &str) -> Result<ScanFacts, String> {
    let (scan, stream) =
        ScanName::of_directory(name).ok_or_else(|| format!("{name} is not the name of a scan"))?;
    let scan = Scan::open(members, &scan).map_err(|error| with_causes(&error))?;
    let is_meant = |it: &&StoredStream| stream.as_ref().is_none_or(|name| name.as_str() == it.name);
    let streams: Vec<&StoredStream> = scan.streams.iter().filter(is_meant).collect();
    if streams.is_empty() {
        return Err(format!("{name} has no such stream"));
    }
    let stored: Vec<_> =
        streams.iter().filter_map(|it| scan.manifest.streams.get(it.number)).collect();
    let modes: Option<Vec<Mode>> = stored.iter().map(|it| mode_of(&it.source)).collect();
    let accounts: Vec<_> = streams.iter().filter_map(|it| it.account.as_ref()).collect();
    let edges = |it: &&StoredStream| {
        let account = it.account.as_ref()?;
        let (first, last) = (account.first.as_ref()?.time?, account.last.as_ref()?.time?);
        let frame = it.frames_per_second().map_or(0, |rate| 1_000_000_000 / rate.max(1));
        Some((first, last.plus_ns(frame as i64)))
    };
    let edges: Vec<_> = streams.iter().filter_map(edges).collect();
    let start = edges.iter().map(|it| it.0).min();
    let end = edges.iter().map(|it| it.1).max();
    let frame_bytes =
        |it: &&StoredStream| it.geometry.map(|it| it.frame_bytes).filter(|it| *it > 0);
    let missing = |it: &&StoredStream| {
        let account = it.account.as_ref().filter(|it| !it.counted_by.is_blind())?;
        let lost = account.terms.expected.saturating_sub(account.terms.written);
        Some(lost.saturating_mul(frame_bytes(it).unwrap_or(0).into()))
    };
    let formats: Vec<_> = streams.iter().map(|it| title(&it.format)).collect();
    Ok(ScanFacts {
        format: same(formats.iter()).cloned().flatten(),
        tracks: modes.as_ref().map(|all| all.iter().map(tracks).sum()),
        start: start.filter(|_| accounts.len() == streams.len()),
        seconds: end.zip(start).map(|(end, start)| end.since(start) as f64 / 1e9),
        bit_rate: modes.map(|all| all.iter().map(|it| f64::from(it.mbits) * 1e6).sum()),
        missing_bytes: streams.iter().map(missing).sum(),
        frame_bytes: same(streams.iter().map(frame_bytes)).flatten(),
        bytes: stored.iter().map(|it| it.bytes).sum(),
    })
}

/// Reads the ends of a file.
fn read_file(path: &Path) -> Result<ScanFacts, String> {
    let told = |error: io::Error| format!("{}: {error}", path.display());
    // What is no file, such as a pipe, is not opened: that could wait.
    if !std::fs::metadata(path).map_err(told)?.is_file() {
        return Err(format!("{} is not a file", path.display()));
    }
    let mut file = File::open(path).map_err(told)?;
    let length = file.metadata().map_err(told)?.len();
    let count = length.min(END_BYTES as u64);
    let (mut head, mut tail) = (vec![0; count as usize], vec![0; count as usize]);
    file.read_exact(&mut head).map_err(told)?;
    file.seek(SeekFrom::Start(length - count)).map_err(told)?;
    file.read_exact(&mut tail).map_err(told)?;
    let facts = file_facts::of_ends(&head, &tail, length);
    facts.ok_or_else(|| format!("{} is not a VDIF file with frames of one length", path.display()))
}

/// The value that all have.
fn same<T: PartialEq>(mut all: impl Iterator<Item = T>) -> Option<T> {
    let first = all.next()?;
    all.all(|it| it == first).then_some(first)
}

/// The mode that a stream was recorded with.
fn mode_of(source: &str) -> Option<Mode> {
    UdpSource::parse(source).ok()?.first()?.mode
}

fn tracks(mode: &Mode) -> u32 {
    mode.channels.saturating_mul(mode.bits).saturating_mul(if mode.complex { 2 } else { 1 })
}

fn title(format: &Format) -> Option<String> {
    match format {
        Format::Frames { kind, .. } => Some(kind.title().replace(' ', "")),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scan_that_ends_while_the_scans_are_listed_stays() {
        let scan = |name: &str| StoredScan { name: name.to_owned(), bytes: 1 };
        let added = vec![scan("s_b"), scan("s_c")];
        let mut state = State { added, ..State::default() };
        state.listed(vec![scan("s_a"), scan("s_b")]);
        assert_eq!(*state.scans, [scan("s_a"), scan("s_b"), scan("s_c")]);
    }
}
