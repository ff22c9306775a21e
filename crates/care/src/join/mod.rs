//! Consecutive scans become one scan, without a copy of their data.
//!
//! ```text
//! pieces      s_ring-…-7            s_ring-…-8            s_ring-…-9
//! chunks      0     1   2(short)    0     1   2(short)    0    1
//! hard links  │     │   │           │     │   │           │    │
//! event       0     1   2           3     4   5           6    7       s_burst1
//! ```
//!
//! The chunk files of the new scan are hard links to those of its pieces, on the same members. Its index has the records
//! of theirs with other numbers, its account is the sum of theirs. The pieces stay as they are, so several new scans can
//! share a piece, and the space of a chunk is free when the last scan that has it is removed.
//!
//! The new scan is made in `<member>/.fullbore/joining-<uuid>`, synced, and then renamed into sight. A process that ends in
//! between has changed no piece. Whoever joins again with the same `uuid` finishes the work.

mod account;
mod index;
mod publish;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;

use fullbore_core::account::{Account, judge_together};
use fullbore_core::chunk_map::RenumberStage;
use fullbore_core::hint::Hint;
use fullbore_core::manifest::{Fill, Manifest, Member, State, Stream, Summary};
use fullbore_core::name::ScanName;
use fullbore_store::inventory::{self, Inventory};
use uuid::Uuid;

/// Scans that cannot be joined.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A scan cannot be read.
    #[error(transparent)]
    Scan(#[from] inventory::Error),
    /// No scans are given.
    #[error("there is no scan to join")]
    Nothing,
    /// A scan cannot be a piece.
    #[error("{scan} cannot be joined to others: {why}")]
    Piece {
        /// The scan.
        scan: ScanName,
        /// The reason.
        why: String,
    },
    /// Two scans do not follow one another.
    #[error("{next} does not continue {scan}: {why}")]
    Apart {
        /// The earlier scan.
        scan: ScanName,
        /// The later scan.
        next: ScanName,
        /// The reason.
        why: String,
    },
    /// Another scan has the name.
    #[error("there is a scan {scan} already")]
    Taken {
        /// The name.
        scan: ScanName,
    },
    /// A file of the new scan cannot be made.
    #[error("{}: {doing}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The operation.
        doing: &'static str,
        /// The cause.
        source: io::Error,
    },
}

impl Hint for Error {
    fn hint(&self) -> Option<Cow<'static, str>> {
        match self {
            Self::Scan(error) => error.hint(),
            Self::Taken { .. } => Some("choose another name".into()),
            Self::Nothing | Self::Piece { .. } | Self::Apart { .. } | Self::File { .. } => None,
        }
    }
}

/// Joins sealed scans, which follow one another in this order, to the scan `name` with the identity `uuid`.
///
/// # Errors
///
/// A scan is not sealed, a member of it is absent, it has redundancy, or it does not continue the scan before: the pieces
/// are unchanged. An error of a file leaves `.fullbore/joining-<uuid>` on members; the next call removes it.
pub fn join(
    roots: &[PathBuf],
    pieces: &[ScanName],
    name: &ScanName,
    uuid: Uuid,
) -> Result<Manifest, Error> {
    let taken = pieces.iter().map(|piece| Inventory::take(roots, piece));
    let pieces = taken.collect::<Result<Vec<_>, _>>()?;
    pieces.iter().try_for_each(check)?;
    pieces.windows(2).try_for_each(|pair| check_pair(&pair[0], &pair[1]))?;
    let mut manifest = manifest_of(&pieces, name, uuid).ok_or(Error::Nothing)?;
    let mut accounts = (0..manifest.streams.len())
        .map(|number| account_of(&pieces, number))
        .collect::<Result<Vec<Account>, _>>()?;
    account::complete_presence(&mut accounts);
    judge_together(accounts.iter_mut());
    let mut parts = BTreeMap::new();
    let mut offsets = vec![index::Offset::default(); manifest.streams.len()];
    for piece in &pieces {
        add_markers(&mut manifest, piece, &offsets);
        let streams = piece.manifest.streams.iter().enumerate();
        for ((number, stream), offset) in streams.zip(&mut offsets) {
            let shift_frames = stream.fill == Fill::Omit;
            index::add(&mut parts, &manifest, piece, number, offset, shift_frames)?;
        }
    }
    for ((stream, account), offset) in manifest.streams.iter_mut().zip(&accounts).zip(&offsets) {
        (stream.blocks, stream.bytes) = (offset.blocks, offset.bytes);
        stream.account = Some(Summary::from(account));
    }
    publish::publish(&pieces, &manifest, &accounts, parts)?;
    Ok(manifest)
}

/// Refuses a scan whose data is not all here, or whose files are not chunks of sealed streams alone.
fn check(piece: &Inventory) -> Result<(), Error> {
    let manifest = &piece.manifest;
    let moving = |it: &Stream| {
        it.renamed.as_ref().is_some_and(|renamed| renamed.stage != RenumberStage::Done)
    };
    let absent = piece.absent_members();
    let why = if manifest.state == State::Recording {
        "it is not sealed".to_owned()
    } else if let Some(member) = absent.first() {
        format!("its member {} is not attached", member.path.display())
    } else if manifest.redundancy.is_some() {
        "it has redundancy, which would not cover the new scan".to_owned()
    } else if manifest.copied.is_some() {
        "it is a copy from another host".to_owned()
    } else if manifest.streams.iter().any(moving) {
        "its chunk files are being renamed".to_owned()
    } else {
        return Ok(());
    };
    Err(Error::Piece { scan: manifest.scan.clone(), why })
}

/// Checks that a scan continues another one: its recorder cut them at one moment, and the streams are the same.
fn check_pair(before: &Inventory, next: &Inventory) -> Result<(), Error> {
    let (earlier, later) = (&before.manifest, &next.manifest);
    let mut streams = earlier.streams.iter().zip(&later.streams);
    let differs = |(a, b): (&Stream, &Stream)| {
        let layout = a.geometry.zip(b.geometry).is_some_and(|(a, b)| a != b);
        a.name != b.name || layout || a.fill != b.fill || a.stripped_bytes != b.stripped_bytes
    };
    let why = if earlier.stopped != Some(later.armed) {
        "time lies between them, or the recorder ended".to_owned()
    } else if earlier.streams.len() > later.streams.len() {
        "streams are gone".to_owned()
    } else if let Some((stream, _)) = streams.find(|pair| differs(*pair)) {
        format!("stream {} is another one", stream.name)
    } else {
        return Ok(());
    };
    Err(Error::Apart { scan: earlier.scan.clone(), next: later.scan.clone(), why })
}

/// Makes the manifest of the new scan, without counts of its streams; `None` if there are no pieces.
fn manifest_of(pieces: &[Inventory], name: &ScanName, uuid: Uuid) -> Option<Manifest> {
    let (first, last) = (&pieces.first()?.manifest, &pieces.last()?.manifest);
    let mut manifest = Manifest {
        uuid,
        scan: name.clone(),
        state: state_of(pieces),
        planned: None,
        armed: first.armed,
        times: pieces.iter().find_map(|it| it.manifest.times),
        host_setup: first.host_setup.clone(),
        members: members_of(pieces),
        away: Vec::new(),
        markers: Vec::new(),
        forwarded: Vec::new(),
        ..last.clone()
    };
    for away in pieces.iter().flat_map(|piece| &piece.manifest.away) {
        if !manifest.away.contains(away) {
            manifest.away.push(away.clone());
        }
    }
    let alone = last.scan.to_string();
    for (number, stream) in manifest.streams.iter_mut().enumerate() {
        let is_alone = stream.directory == alone;
        stream.directory = name.directory((!is_alone).then_some(&stream.name));
        stream.renamed = None;
        let earlier = pieces.iter().rev().filter_map(|it| it.manifest.streams.get(number));
        stream.geometry = earlier.filter_map(|it| it.geometry).next();
    }
    Some(manifest)
}

/// The state of the new scan: the least regular one of its pieces.
fn state_of(pieces: &[Inventory]) -> State {
    let is = |state| pieces.iter().any(|piece| piece.manifest.state == state);
    match (is(State::Recovered), is(State::Aborted)) {
        (true, _) => State::Recovered,
        (false, true) => State::Aborted,
        (false, false) => State::Sealed,
    }
}

/// The members of all pieces, each once, with a failure in any piece.
fn members_of(pieces: &[Inventory]) -> Vec<Member> {
    let mut members: Vec<Member> = Vec::new();
    for member in pieces.iter().flat_map(|piece| &piece.manifest.members) {
        match members.iter_mut().find(|it| it.uuid == member.uuid) {
            Some(known) => known.failure = known.failure.take().or_else(|| member.failure.clone()),
            None => members.push(member.clone()),
        }
    }
    members
}

/// The account of a stream: the sum over the pieces that have it.
fn account_of(pieces: &[Inventory], number: usize) -> Result<Account, Error> {
    let mut sum: Option<Account> = None;
    let start = pieces[0].manifest.armed;
    for piece in pieces.iter().filter(|it| number < it.manifest.streams.len()) {
        let found = piece.of_stream(number).find_map(|it| it.account().get().cloned());
        let account = found.ok_or_else(|| Error::Piece {
            scan: piece.manifest.scan.clone(),
            why: "it has no readable account".to_owned(),
        })?;
        match &mut sum {
            None => sum = Some(account),
            Some(sum) if account::differ_in_threads(sum, &account) => {
                let why = "a stream has one thread in it, and several in another piece".to_owned();
                return Err(Error::Piece { scan: piece.manifest.scan.clone(), why });
            }
            Some(sum) => account::add(sum, account, piece.manifest.armed.since(start)),
        }
    }
    sum.ok_or(Error::Nothing)
}

/// Adds the markers of a piece, with their positions in the new scan.
fn add_markers(manifest: &mut Manifest, piece: &Inventory, offsets: &[index::Offset]) {
    for marker in &piece.markers {
        let mut marker = marker.clone();
        for position in &mut marker.positions {
            let streams = piece.manifest.streams.iter();
            if let Some((_, offset)) =
                streams.zip(offsets).find(|(stream, _)| stream.name == position.stream)
            {
                position.frame = position.frame.saturating_add(offset.frames_before);
                position.byte = position.byte.saturating_add(offset.bytes);
            }
        }
        manifest.markers.push(marker);
    }
}
