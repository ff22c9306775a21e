//! Markers of scans: set during a scan or later, and kept when a process dies.
//!
//! ```text
//! mark ──► <member>/<first stream>/.fullbore/markers   a line on every member, synced; without the recorder's lock
//!            │
//!            ├── sealing, recover, rebuild ──► manifest     copies the markers of the file into it
//!            ├── mark, if the scan is not being recorded ──► manifest
//!            └── every reader of the scan: merges both
//! ```
//!
//! Lines are appended under a lock of the file itself, so `mark` commands wait only for each other. A line that a crash
//! cut short does not damage the others.
//! The position of a stream at the marked moment is read from the index, without the recorder. If that position is not
//! on the disk yet, `mark` looks for it a little longer and appends it in a second line.

use std::borrow::Cow;
use std::fs::OpenOptions;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use fullbore_core::hint::Hint;
use fullbore_core::manifest::{MANIFEST_FILE, Manifest, State};
use fullbore_core::marker::{self, MARKERS_FILE, Marker, Position, Text};
use fullbore_core::name::ScanName;
use fullbore_linux::clock::Clock;
use fullbore_linux::regular_file;
use fullbore_time::Tai;
use rustix::fs::{FlockOperation, OFlags, flock};
use uuid::Uuid;

use super::inventory::{self, Inventory, MemberFiles, side_file};
use super::lock::{self, ScanLock, is_held, put_file};
use super::reader::{Scan, StoredStream};

/// Maximum size of a marker file.
const LARGEST: u64 = 8 << 20;

/// Time to wait for the marked data to be on the disk: ten times the interval of syncs.
const UNTIL_DURABLE: Duration = Duration::from_millis(2500);

/// Time between two looks for it: an index may be long. The recorder is another process and wakes nobody here.
const LOOK: Duration = Duration::from_millis(250);

/// Time to wait for another process that holds a scan's manifests without recording.
const UNTIL_FREE: Duration = Duration::from_secs(10);

/// The moment to mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment<'a> {
    /// The current time; for a finished scan, its end.
    Now,
    /// A given time.
    Time(Tai),
    /// The arrival of this byte of a stream; of the only stream, if none is named.
    Byte(Option<&'a str>, u64),
}

/// The result of setting a marker.
#[derive(Clone, Debug)]
pub struct Set {
    /// The marker.
    pub marker: Marker,
    /// Streams whose position is not known; in a scan that is being recorded, not until more of it is on the disk.
    pub open: Vec<String>,
    /// True if the scan is being recorded.
    pub is_being_recorded: bool,
    /// True if members are missing that may hold the positions.
    pub lacks_members: bool,
    /// Members, including detached ones, that did not store the marker although others did.
    pub failed: Vec<(PathBuf, String)>,
}

/// A marker that could not be set.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The scan.
    #[error(transparent)]
    Scan(#[from] inventory::Error),
    /// The time is outside of the scan.
    #[error("{time:.3} is not in {scan}, which was recorded from {from:.3} to {to:.3}")]
    Elsewhen {
        /// The scan.
        scan: ScanName,
        /// The time asked for.
        time: Tai,
        /// The time when the scan was armed.
        from: Tai,
        /// The time when it was stopped; the current time if it is being recorded.
        to: Tai,
    },
    /// There is no such stream.
    #[error("{scan} has no stream {stream}; it has {}", has.join(", "))]
    NoStream {
        /// The scan.
        scan: ScanName,
        /// The stream asked for.
        stream: String,
        /// The streams of the scan.
        has: Vec<String>,
    },
    /// A byte position without a stream, in a scan with several streams.
    #[error("{scan} has several streams: {}", has.join(", "))]
    WhichStream {
        /// The scan.
        scan: ScanName,
        /// The streams of the scan.
        has: Vec<String>,
    },
    /// The stream does not have that many bytes.
    #[error("{scan}/{stream} has {bytes} bytes so far; byte {byte} does not exist")]
    NoByte {
        /// The scan.
        scan: ScanName,
        /// The stream.
        stream: String,
        /// The position asked for.
        byte: u64,
        /// Bytes known so far.
        bytes: u64,
    },
    /// The marker file is full.
    #[error("{}: the marker file is full: {} of at most {LARGEST} bytes", path.display(), bytes)]
    Full {
        /// The file.
        path: PathBuf,
        /// The size.
        bytes: u64,
    },
    /// No member could store the marker.
    #[error("{}: cannot write the marker: {source}", path.display())]
    Write {
        /// The first file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// The manifests could not be written.
    #[error(transparent)]
    Manifest(#[from] lock::Error),
}

impl Hint for Error {
    fn hint(&self) -> Option<Cow<'static, str>> {
        Some(Cow::Borrowed(match self {
            Error::Scan(error) => return error.hint(),
            Error::Manifest(error) => return error.hint(),
            Error::Elsewhen { .. } => "times are UTC, by the clock of the host that recorded it",
            Error::NoStream { .. } => return None,
            Error::WhichStream { .. } => "name one: --position STREAM:BYTES",
            Error::NoByte { .. } => "`fullbore info` shows the number of bytes",
            Error::Full { .. } => "keep further notes elsewhere, for example in a logbook",
            Error::Write { .. } => "is the member full, or read-only?",
        }))
    }
}

/// Sets a marker. The marker is on the disk when this returns, even if the recorder dies.
pub fn set(
    roots: &[PathBuf],
    name: &ScanName,
    moment: Moment<'_>,
    text: Text,
) -> Result<Set, Error> {
    let now = Clock::new().now();
    let scan = Scan::open(roots, name)?;
    let mut marker = Marker {
        uuid: Uuid::now_v7(),
        time: time_of(&scan, moment, now)?,
        set: now,
        text,
        positions: Vec::new(),
    };
    locate(&scan, moment, &mut marker);
    let mut failed = append(&scan.inventory, &marker)?;
    let absent = scan.inventory.absent_members();
    let lacks_members = !absent.is_empty();
    failed.extend(
        absent.into_iter().map(|member| (member.path.clone(), "it is not attached".to_owned())),
    );
    let is_being_recorded = is_being_recorded(&scan);
    let open = match is_being_recorded {
        true => look_for(roots, name, moment, &mut marker)?,
        false => missing(&scan.manifest, &marker),
    };
    take_into_manifest(roots, name)?;
    Ok(Set { marker, open, is_being_recorded, lacks_members, failed })
}

/// Locates the marked position in the streams again, now that more of the scan is on the disk.
fn look_for(
    roots: &[PathBuf],
    name: &ScanName,
    moment: Moment<'_>,
    marker: &mut Marker,
) -> Result<Vec<String>, Error> {
    let until = Instant::now() + UNTIL_DURABLE;
    loop {
        std::thread::sleep(LOOK);
        let scan = Scan::open(roots, name)?;
        let known = marker.positions.len();
        locate(&scan, moment, marker);
        let open = missing(&scan.manifest, marker);
        let over = open.is_empty() || Instant::now() >= until || !is_being_recorded(&scan);
        if over {
            if marker.positions.len() > known {
                // The marker itself is on the disk already; this line adds only the positions.
                append(&scan.inventory, marker)?;
            }
            return Ok(open);
        }
        marker.positions.truncate(known);
    }
}

fn is_being_recorded(scan: &Scan) -> bool {
    scan.manifest.state == State::Recording && is_held(&scan.inventory.lock_path())
}

/// Returns the streams without a position.
fn missing(manifest: &Manifest, marker: &Marker) -> Vec<String> {
    let known = |name: &&fullbore_core::name::Name| {
        marker.positions.iter().all(|position| position.stream != **name)
    };
    let names = manifest.streams.iter().map(|stream| &stream.name);
    names.filter(known).map(ToString::to_string).collect()
}

/// Returns the time of the marked moment.
fn time_of(scan: &Scan, moment: Moment<'_>, now: Tai) -> Result<Tai, Error> {
    let name = || scan.manifest.scan.clone();
    let recording = is_being_recorded(scan);
    let (from, to) = (scan.manifest.armed, end_of(scan).filter(|_| !recording).unwrap_or(now));
    match moment {
        Moment::Now => Ok(to.max(from)),
        Moment::Time(time) if (from..=to).contains(&time) => Ok(time),
        Moment::Time(time) => Err(Error::Elsewhen { scan: name(), time, from, to }),
        Moment::Byte(stream, byte) => {
            let stream = stream_of(scan, stream)?;
            stream.received_when(byte).ok_or_else(|| Error::NoByte {
                scan: name(),
                stream: stream.name.clone(),
                byte,
                bytes: stream.bytes(),
            })
        }
    }
}

/// Returns the end of the scan, if known.
fn end_of(scan: &Scan) -> Option<Tai> {
    let blocks = scan.streams.iter().filter_map(|stream| stream.blocks.last());
    scan.manifest.stopped.or_else(|| blocks.map(|placed| placed.block.seen).max())
}

fn stream_of<'a>(scan: &'a Scan, named: Option<&str>) -> Result<&'a StoredStream, Error> {
    let has = || scan.streams.iter().map(|stream| stream.name.clone()).collect();
    let name = || scan.manifest.scan.clone();
    match (named, scan.streams.as_slice()) {
        (Some(stream), _) => scan.stream(stream).ok_or_else(|| Error::NoStream {
            scan: name(),
            stream: stream.to_owned(),
            has: has(),
        }),
        (None, [only]) => Ok(only),
        (None, _) => Err(Error::WhichStream { scan: name(), has: has() }),
    }
}

/// Adds the positions of streams that the marker lacks.
fn locate(scan: &Scan, moment: Moment<'_>, marker: &mut Marker) {
    if let Moment::Byte(named, byte) = moment
        && let Ok(stream) = stream_of(scan, named)
        && let Some(frame) = stream.frame_at_byte(byte)
        && let Ok(name) = stream.name.parse()
        && marker.positions.iter().all(|position| position.stream != name)
    {
        marker.positions.push(Position { stream: name, frame, byte });
    }
    place(scan, marker, is_being_recorded(scan));
}

/// Adds the missing positions of the streams at the marked moment, as far as their indexes show. In a scan that is
/// `live`, positions behind the last block are unknown.
pub fn place(scan: &Scan, marker: &mut Marker, live: bool) {
    for (stream, listed) in scan.streams.iter().zip(&scan.manifest.streams) {
        let known = marker.positions.iter().any(|position| position.stream == listed.name);
        if known {
            continue;
        }
        if let Some((frame, byte)) = stream.received_by(marker.time, live) {
            marker.positions.push(Position { stream: listed.name.clone(), frame, byte });
        }
    }
}

/// Appends a line on every member. Returns the members that failed; an error if all did.
fn append(inventory: &Inventory, marker: &Marker) -> Result<Vec<(PathBuf, String)>, Error> {
    let line = marker.to_line();
    let first = inventory.manifest.streams.first().map(|stream| stream.directory.as_str());
    let places = inventory.holdings.iter().filter(|it| Some(it.name.as_str()) == first);
    let (mut taken, mut failed, mut first_error) = (0, Vec::new(), None);
    for holding in places {
        match append_line(&holding.side(MARKERS_FILE), &line) {
            Ok(()) => taken += 1,
            Err(error) => {
                failed.push((inventory.roots[holding.root].path.clone(), error.to_string()));
                first_error.get_or_insert(error);
            }
        }
    }
    match first_error {
        _ if taken > 0 => Ok(failed),
        Some(error) => Err(error),
        None => {
            let path = inventory.manifest_path.with_file_name(MARKERS_FILE);
            Err(Error::Write { path, source: io::ErrorKind::NotFound.into() })
        }
    }
}

fn append_line(path: &Path, line: &[u8]) -> Result<(), Error> {
    let failed = |source| Error::Write { path: path.to_owned(), source };
    let mut options = OpenOptions::new();
    options.read(true).append(true).create(true).mode(0o644);
    let mut file =
        regular_file::open_with_flags(&options, OFlags::NOFOLLOW, path).map_err(failed)?;
    flock(&file, FlockOperation::LockExclusive).map_err(|errno| failed(errno.into()))?;
    let bytes = file.metadata().map_err(failed)?.len();
    if bytes + line.len() as u64 > LARGEST {
        return Err(Error::Full { path: path.to_owned(), bytes });
    }
    let mut write = || -> io::Result<()> {
        let mut last = [b'\n'];
        if bytes > 0 {
            file.seek(SeekFrom::End(-1))?;
            file.read_exact(&mut last)?;
        }
        // A newline ends a line that was cut short, so that it does not damage this one.
        let begun = if last == [b'\n'] { Vec::new() } else { vec![b'\n'] };
        file.write_all(&[begun.as_slice(), line].concat())?;
        file.sync_all()?;
        match bytes {
            0 => lock::sync_directory(path.parent().unwrap_or(Path::new("."))),
            _ => Ok(()),
        }
    };
    write().map_err(failed)
}

/// Returns the markers in a file; none if the file is missing or unreadable.
pub fn of_file(path: &Path) -> Vec<Marker> {
    let read = || -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        regular_file::open(path)?.take(LARGEST).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    read().map_or(Vec::new(), |bytes| marker::of_lines(&bytes).collect())
}

/// Returns the markers of a scan, from the manifests and marker files of all of its directories.
pub fn of_holdings(holdings: &[MemberFiles]) -> Vec<Marker> {
    let told = holdings.iter().filter_map(|it| it.manifest.get()).flat_map(|it| it.markers.clone());
    let kept = holdings.iter().flat_map(|holding| of_file(&holding.side(MARKERS_FILE)));
    marker::joined(told.chain(kept))
}

/// Returns the path of the marker file in a stream's directory.
pub fn file_of(directory: &Path) -> PathBuf {
    side_file(directory, MARKERS_FILE)
}

/// Copies the markers of the files into the manifests of a sealed scan. For a scan that is being recorded, the recorder
/// does so; for an unsealed one, `recover`.
fn take_into_manifest(roots: &[PathBuf], name: &ScanName) -> Result<(), Error> {
    // Readers find the marker in the file if no lock is to be had, and sealing copies it into the manifest.
    amend(roots, name, |_| ()).map(drop)
}

/// Changes the manifests of a sealed scan under their locks, and copies the markers of the files into them. Returns false
/// if the scan is not sealed, or its locks were held for 10 s.
pub fn amend(
    roots: &[PathBuf],
    name: &ScanName,
    change: impl Fn(&mut Manifest),
) -> Result<bool, Error> {
    let until = Instant::now() + UNTIL_FREE;
    loop {
        let inventory = Inventory::take(roots, name)?;
        if inventory.manifest.state == State::Recording {
            return Ok(false);
        }
        if amended(&inventory, &change) == inventory.manifest {
            return Ok(true);
        }
        match lock_all(&inventory) {
            Ok(mut locks) => {
                // The process that held the lock may have changed the manifests.
                let inventory = Inventory::take(roots, name)?;
                let is_over = inventory.manifest.state != State::Recording;
                if is_over {
                    put_manifests(&inventory, &amended(&inventory, &change), &mut locks)?;
                }
                return Ok(is_over);
            }
            Err(lock::Error::Held { .. }) if Instant::now() >= until => return Ok(false),
            // No lock can be waited for with a limit.
            Err(lock::Error::Held { .. }) => std::thread::sleep(LOOK / 10),
            Err(error) => return Err(error.into()),
        }
    }
}

fn amended(inventory: &Inventory, change: &impl Fn(&mut Manifest)) -> Manifest {
    let mut manifest =
        Manifest { markers: inventory.markers.clone(), ..inventory.manifest.clone() };
    change(&mut manifest);
    manifest
}

fn lock_all(inventory: &Inventory) -> Result<Vec<ScanLock>, lock::Error> {
    let readable = inventory.holdings.iter().filter(|holding| holding.manifest.get().is_some());
    readable.map(|holding| ScanLock::take(&holding.side(MANIFEST_FILE))).collect()
}

fn put_manifests(
    inventory: &Inventory,
    manifest: &Manifest,
    locks: &mut [ScanLock],
) -> Result<(), Error> {
    let json = manifest.to_json();
    for holding in &inventory.holdings {
        let path = holding.side(MANIFEST_FILE);
        match locks.iter_mut().find(|lock| lock.path() == path) {
            Some(lock) => lock.replace(&json)?,
            // `recover` repairs a copy that is missing or unreadable.
            None if holding.manifest.get().is_none() => {}
            None => put_file(&path, &json).map_err(|source| Error::Write { path, source })?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use fullbore_core::manifest::Forwarded;

    use super::*;
    use crate::testing::{Laid, Store, StreamPlan, start};

    #[test]
    fn the_manifests_of_all_members_are_amended_and_those_of_a_recording_are_not() {
        let store = Store::new(2);
        let laid = store.lay_down("r1_a", &[StreamPlan::vdif("a"), StreamPlan::vdif("b")]);
        let forwarded = vec![Forwarded { stream: "a".into(), sent: 7, ..Forwarded::default() }];
        let change = |manifest: &mut Manifest| manifest.forwarded.clone_from(&forwarded);
        let held = ScanLock::take(&laid.manifest_path(1, 1)).unwrap();
        std::thread::scope(|scope| {
            let amended = scope.spawn(|| amend(&store.roots(), &laid.manifest.scan, change));
            std::thread::sleep(LOOK);
            drop(held);
            assert!(amended.join().unwrap().unwrap());
        });
        let inventory = Inventory::take(&store.roots(), &laid.manifest.scan).unwrap();
        assert!(inventory.holdings.len() > 1);
        for holding in &inventory.holdings {
            assert_eq!(holding.manifest.get().unwrap().forwarded, forwarded);
        }
        let running = store.lay_down("r1_b", &[StreamPlan::vdif("a")]);
        let manifest = Manifest { state: State::Recording, ..running.manifest.clone() };
        for member in 0..2 {
            std::fs::write(running.manifest_path(0, member), manifest.to_json()).unwrap();
        }
        assert!(!amend(&store.roots(), &manifest.scan, change).unwrap());
    }

    fn text(words: &str) -> Text {
        Text::typed(words).unwrap()
    }

    fn mark(store: &Store, laid: &Laid, moment: Moment<'_>, words: &str) -> Result<Set, Error> {
        set(&store.roots(), &laid.name, moment, text(words))
    }

    fn kept(store: &Store, laid: &Laid) -> Vec<String> {
        let inventory = Inventory::take(&store.roots(), &laid.name).unwrap();
        inventory.markers.iter().map(|marker| marker.text.to_string()).collect()
    }

    #[test]
    fn a_marker_of_a_sealed_scan_is_in_every_manifest_and_the_scan_is_still_whole() {
        let store = Store::new(3);
        let plans = [
            StreamPlan::vdif("a").frames(1000).timely(),
            StreamPlan::vdif("b").frames(500).timely(),
        ];
        let laid = store.lay_down("r1_a", &plans);
        let time = start().plus_ns(2_000_000_000);
        let set = mark(&store, &laid, Moment::Time(time), "the wind rises").unwrap();
        assert_eq!((set.marker.time, set.open.len(), set.failed.len()), (time, 0, 0));
        assert_eq!(set.marker.positions.len(), 2);
        let inventory = Inventory::take(&store.roots(), &laid.name).unwrap();
        for holding in &inventory.holdings {
            assert_eq!(holding.manifest.get().unwrap().markers, std::slice::from_ref(&set.marker));
        }
        let scan = Scan::open(&store.roots(), &laid.name).unwrap();
        assert_eq!(scan.findings, []);
    }

    #[test]
    fn a_position_is_a_time_and_a_time_is_a_position() {
        let store = Store::new(2);
        let laid = store.lay_down("r1_a", &[StreamPlan::vdif("a").frames(1000).timely()]);
        let byte = 512 * 321;
        let set = mark(&store, &laid, Moment::Byte(None, byte), "here").unwrap().marker;
        assert_eq!((set.positions[0].frame, set.positions[0].byte), (321, byte));
        let again = mark(&store, &laid, Moment::Time(set.time), "here too").unwrap().marker;
        let off = again.positions[0].frame.abs_diff(321);
        assert!(off <= 1, "{} frames off", off);
        assert_eq!(again.positions[0].byte, again.positions[0].frame as u64 * 512);
        let error = mark(&store, &laid, Moment::Byte(None, 1 << 40), "far").unwrap_err();
        assert!(matches!(error, Error::NoByte { .. }), "{error}");
        let error = mark(&store, &laid, Moment::Byte(Some("x"), 0), "far").unwrap_err();
        assert!(matches!(error, Error::NoStream { .. }), "{error}");
        let before = Moment::Time(start().plus_ns(-1_000_000_000));
        let error = mark(&store, &laid, before, "before").unwrap_err();
        assert!(matches!(error, Error::Elsewhen { .. }), "{error}");
        assert_eq!(kept(&store, &laid).len(), 2);
    }

    #[test]
    fn commands_at_once_lose_none_of_one_anothers() {
        let store = Store::new(2);
        let laid = store.lay_down("r1_a", &[StreamPlan::vdif("a").frames(300)]);
        std::thread::scope(|scope| {
            for n in 0..8 {
                let (store, laid) = (&store, &laid);
                scope
                    .spawn(move || mark(store, laid, Moment::Now, &format!("marker {n}")).unwrap());
            }
        });
        let mut words = kept(&store, &laid);
        words.sort_unstable();
        assert_eq!(words, (0..8).map(|n| format!("marker {n}")).collect::<Vec<_>>());
        let manifest = Inventory::take(&store.roots(), &laid.name).unwrap().manifest;
        assert_eq!(manifest.markers.len(), 8, "and all of them are in the manifest");
    }
}
