//! What a scan says of itself: JSON that people read, one copy beside every stream on every member.
//!
//! The manifest is written when the scan is armed (`recording`) and again when it is sealed. The
//! full account of each stream, with its gaps, stands beside it in `account.json`.

use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::account::{Account, CountedBy, Presence, Terms, Verdict};
use crate::completeness::{Beside, Planned};
use crate::format::panda::control::Settings;
use crate::format::panda::{Ending, Tally};
use crate::layout::Geometry;
use crate::marker::Marker;
use crate::name::{Name, ScanName};
use crate::redundancy::{Followed, Redundancy, Scheme};
use crate::renamed::Renamed;
use crate::time::Tai;
use crate::wall::Wall;

/// The version of the manifest's form; readers take this one and the one before.
pub const VERSION: u32 = 1;

/// The directory, inside a stream's directory, of all that is not data.
pub const SIDE_DIRECTORY: &str = ".fullbore";

/// The manifest's file name in [`SIDE_DIRECTORY`].
pub const MANIFEST_FILE: &str = "manifest.json";

/// The account's file name in [`SIDE_DIRECTORY`].
pub const ACCOUNT_FILE: &str = "account.json";

/// The index's file name in [`SIDE_DIRECTORY`].
pub const INDEX_FILE: &str = "index";

/// How far a scan has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// Being recorded, or left unsealed by a process that died.
    Recording,
    /// Sealed by a stop.
    Sealed,
    /// Sealed by an abort: what was held then is counted as overrun.
    Aborted,
    /// Sealed by `recover` from index and chunks.
    Recovered,
}

/// A disk of the disk set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Its identity, kept in `.fullbore/member.json` at its root.
    pub uuid: Uuid,
    /// Where it was mounted when the scan was recorded.
    pub path: PathBuf,
    /// Why it took no more data, if it stopped doing so.
    pub failure: Option<String>,
    /// What direct I/O was not possible for, said aloud.
    pub buffered: bool,
}

/// A disk of the disk set that took no part in the scan: nothing of it lies there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Away {
    /// Its identity, if it was known which one it should have been.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uuid: Option<Uuid>,
    /// Where it was looked for.
    pub path: PathBuf,
    /// Why it took no part.
    pub why: String,
}

/// In what a disk set fell short of what was asked of it, be every frame there or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanting {
    /// A member took no part.
    Away(Away),
    /// A member stopped taking data.
    Failed {
        /// Where it was mounted.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// Redundancy was asked for, and it is not known how much of it was made.
    Unfinished(Scheme),
    /// Data chunks are in no stripe.
    Unprotected {
        /// So many.
        chunks: u64,
    },
    /// Stripes have fewer parity chunks than were asked for.
    Narrow {
        /// So many.
        stripes: u64,
        /// What was asked for.
        scheme: Scheme,
    },
}

impl fmt::Display for Wanting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Wanting::Away(Away { path, why, .. }) => {
                write!(f, "{} was away: {why}", path.display())
            }
            Wanting::Failed { path, why } => write!(f, "{} failed: {why}", path.display()),
            Wanting::Unfinished(scheme) => write!(f, "{scheme} is not complete"),
            Wanting::Unprotected { chunks } => write!(f, "chunks without parity: {chunks}"),
            Wanting::Narrow { stripes, scheme } => {
                write!(f, "stripes with fewer parity chunks than {scheme} asks for: {stripes}")
            }
        }
    }
}

/// How a stream's frames are laid out and counted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "name")]
pub enum Format {
    /// VDIF frames, headers kept.
    Vdif {
        /// Frames per second of each thread, given or learned.
        frames_per_second: Option<u64>,
        /// Whether that number was derived from the frames themselves.
        derived: bool,
        /// The threads that lie in the stream, in the order of their frames; empty: as they came.
        threads: Vec<u16>,
    },
    /// Samples of a PandA, packed one after the other without the heads of their frames.
    Panda {
        /// What the PandA said before the first of them, as it came: which columns they have.
        header: String,
        /// How the acquisition ended, once it has.
        ending: Option<Ending>,
        /// How many samples the PandA says it took, if it could be asked.
        captured: Option<u64>,
        /// What each connection brought.
        connections: Vec<Tally>,
        /// What was lost or is in doubt, in sentences.
        notes: Vec<String>,
        /// What the PandA was set to, if it could be asked.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        settings: Option<Box<Settings>>,
    },
    /// Datagrams of any other kind.
    Raw,
}

/// One stream of the scan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stream {
    /// Its name.
    pub name: Name,
    /// The directory it has on every member.
    pub directory: String,
    /// The endpoint it was recorded from.
    pub source: String,
    /// What its frames are.
    pub format: Format,
    /// Bytes before each frame that were received and not kept (a VTP packet number has 8).
    pub stripped_bytes: u32,
    /// How its bytes are cut; `None` while no frame has come.
    pub geometry: Option<Geometry>,
    /// Whether missing frames are filled.
    pub fill: Fill,
    /// Blocks written.
    pub blocks: u64,
    /// Bytes written, fill included.
    pub bytes: u64,
    /// The account in short.
    pub account: Option<Summary>,
    /// The numbers of its chunk files, if they are not those of the index.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub renamed: Option<Renamed>,
}

impl Stream {
    /// Frames per second of each of its threads, where the rate is known.
    pub fn frames_per_second_of_thread(&self) -> Option<u64> {
        match &self.format {
            Format::Vdif { frames_per_second, .. } => *frames_per_second,
            Format::Panda { .. } | Format::Raw => None,
        }
    }

    /// Frames per second of all its threads together, where the rate is known.
    pub fn frames_per_second(&self, account: &Account) -> Option<u64> {
        let listed = match &self.format {
            Format::Vdif { threads, .. } => threads.len(),
            Format::Panda { .. } | Format::Raw => 0,
        };
        let threads = listed.max(account.flows.len()).max(1);
        self.frames_per_second_of_thread().map(|rate| rate.saturating_mul(threads as u64))
    }
}

/// What stands in the place of frames that are not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind", content = "word")]
pub enum Fill {
    /// VDIF frames marked invalid that keep time, thread and station.
    Invalid,
    /// A 32-bit little-endian word repeated.
    Pattern(u32),
    /// Nothing: frames lie as they came.
    Omit,
}

/// An account without its lists.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    /// The balance.
    pub terms: Terms,
    /// By what frames were counted.
    pub counted_by: CountedBy,
    /// What the numbers alone cannot show.
    pub presence: Vec<Presence>,
    /// Time of the first frame (UTC).
    pub first: Option<Tai>,
    /// Time of the last frame (UTC).
    pub last: Option<Tai>,
    /// What these times were against the host's clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock: Option<Wall>,
    /// What the balance does not tell; nothing in a manifest of an earlier version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beside: Option<Beside>,
    /// The end of it.
    pub verdict: Verdict,
}

impl From<&Account> for Summary {
    fn from(account: &Account) -> Self {
        Self {
            terms: account.terms,
            counted_by: account.counted_by,
            presence: account.presence.clone(),
            first: account.first.and_then(|edge| edge.time),
            last: account.last.and_then(|edge| edge.time),
            clock: account.clock,
            beside: Some(Beside::from(account)),
            verdict: account.verdict,
        }
    }
}

/// What tells when a scan was recorded, where its recorder's word of it is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Times {
    /// Its first frame and its last were received then, by the host's clock.
    Received,
    /// They stand in its first frame and its last.
    Frames,
    /// Its first chunk file was made then, and the last one changed.
    Files,
}

/// How a thread of the recorder stood, as the kernel said.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Thread {
    /// Its name.
    pub name: String,
    /// Cores that it could run on.
    pub cpus: Vec<usize>,
    /// How it was scheduled: `other`, `fifo` and so on.
    pub policy: String,
    /// Its priority, if it was `fifo`.
    pub priority: i32,
    /// Its niceness, if it was not.
    pub nice: i32,
}

/// What block memory was, as the kernel said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pages {
    /// Bytes of it.
    pub bytes: u64,
    /// Of them in huge pages that were set aside (`vm.nr_hugepages`).
    pub reserved_bytes: u64,
    /// Of them in huge pages that the kernel had made of ordinary memory.
    pub transparent_bytes: u64,
    /// Of them locked, or never swapped for being set aside.
    pub locked_bytes: u64,
}

impl Pages {
    /// Bytes in huge pages of either kind.
    pub fn huge_bytes(&self) -> u64 {
        self.reserved_bytes.saturating_add(self.transparent_bytes)
    }
}

/// How the recorder stood when it was armed: what to look at where a scan has overruns and another has none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rig {
    /// Why threads ran where they did.
    pub why: String,
    /// Capture threads, then writers.
    pub threads: Vec<Thread>,
    /// Block memory, if the kernel told of it.
    pub pages: Option<Pages>,
}

/// A scan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// [`VERSION`].
    pub version: u32,
    /// Identity of the scan; its index records carry it in their checksums.
    pub uuid: Uuid,
    /// Session and scan.
    pub scan: ScanName,
    /// How far it has come.
    pub state: State,
    /// Program and version that wrote it.
    pub software: String,
    /// The host it was recorded on.
    pub host: String,
    /// When it was to begin and to end, if that was said beforehand.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub planned: Option<Planned>,
    /// When everything was mapped, faulted in and listening.
    pub armed: Tai,
    /// When the last frame was taken.
    pub stopped: Option<Tai>,
    /// What those two times are, if they are not the recorder's own words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub times: Option<Times>,
    /// Where the recorder's threads and memory were, if it told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rig: Option<Rig>,
    /// What stands in for members that are lost, if anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub redundancy: Option<Redundancy>,
    /// The disk set.
    pub members: Vec<Member>,
    /// What of the disk set took no part.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub away: Vec<Away>,
    /// The streams; a record's stream number in the index is the place here.
    pub streams: Vec<Stream>,
    /// What somebody wanted to be remembered of it, in the order of time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub markers: Vec<Marker>,
}

/// A manifest that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Not JSON, or not of this form.
    #[error("not a manifest: {0}")]
    Form(#[from] serde_json::Error),
    /// Written by a later version.
    #[error("the manifest has version {found}, and this program reads up to {VERSION}")]
    Version {
        /// The version found.
        found: u32,
    },
}

impl Manifest {
    /// Reads a manifest's JSON.
    pub fn from_json(json: &[u8]) -> Result<Self, Error> {
        #[derive(Deserialize)]
        struct Versioned {
            version: u32,
        }
        let Versioned { version } = serde_json::from_slice(json)?;
        if version > VERSION {
            return Err(Error::Version { found: version });
        }
        Ok(serde_json::from_slice(json)?)
    }

    /// The JSON that people and programs read.
    pub fn to_json(&self) -> Vec<u8> {
        let mut json = serde_json::to_vec_pretty(self).expect("a manifest has only plain fields");
        json.push(b'\n');
        json
    }

    /// The worst verdict of its streams, once each has one.
    pub fn verdict(&self) -> Option<Verdict> {
        let verdicts = self.streams.iter().map(|s| s.account.as_ref().map(|a| a.verdict));
        verdicts.collect::<Option<Vec<_>>>()?.into_iter().max()
    }

    /// In what its disk set was found wanting. Of a scan that is being recorded, what is known by now.
    pub fn wanting(&self) -> Vec<Wanting> {
        let away = self.away.iter().cloned().map(Wanting::Away);
        let failed = self.members.iter().filter_map(|member| {
            let (path, why) = (member.path.clone(), member.failure.clone()?);
            Some(Wanting::Failed { path, why })
        });
        away.chain(failed).chain(self.redundancy_wanting()).collect()
    }

    fn redundancy_wanting(&self) -> Vec<Wanting> {
        let Some(redundancy) = self.redundancy.filter(|_| self.state != State::Recording) else {
            return Vec::new();
        };
        let scheme = redundancy.scheme();
        let Some(Followed { unprotected, narrow, .. }) = redundancy.followed else {
            return vec![Wanting::Unfinished(scheme)];
        };
        let chunks = (unprotected > 0).then_some(Wanting::Unprotected { chunks: unprotected });
        let stripes = (narrow > 0).then_some(Wanting::Narrow { stripes: narrow, scheme });
        chunks.into_iter().chain(stripes).collect()
    }

    /// Bytes written in all streams.
    pub fn bytes(&self) -> u64 {
        self.streams.iter().fold(0, |sum, stream| sum.saturating_add(stream.bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sealed(redundancy: Option<Redundancy>, failure: Option<&str>, away: &[&str]) -> Manifest {
        let member = |path: &str, failure: Option<&str>| Member {
            uuid: Uuid::nil(),
            path: path.into(),
            failure: failure.map(str::to_owned),
            buffered: false,
        };
        let away = away.iter().map(|path| Away {
            uuid: None,
            path: path.into(),
            why: "it is not mounted".to_owned(),
        });
        Manifest {
            version: VERSION,
            uuid: Uuid::nil(),
            scan: "r1_a".parse().unwrap(),
            state: State::Sealed,
            software: String::new(),
            host: String::new(),
            planned: None,
            armed: Tai(0),
            stopped: None,
            times: None,
            rig: None,
            redundancy,
            members: vec![member("/a", None), member("/b", failure)],
            away: away.collect(),
            streams: Vec::new(),
            markers: Vec::new(),
        }
    }

    fn told(manifest: &Manifest) -> Vec<String> {
        manifest.wanting().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_disk_set_is_found_wanting_of_members_and_of_parity() {
        assert_eq!(told(&sealed(None, None, &[])), [""; 0]);
        assert_eq!(told(&sealed(None, Some("full"), &[])), ["/b failed: full"]);
        assert_eq!(told(&sealed(None, None, &["/c"])), ["/c was away: it is not mounted"]);
        let asked = Redundancy::of(Scheme { data: 3, parity: 2 });
        let with = |followed: Followed| {
            told(&sealed(Some(Redundancy { followed: Some(followed), ..asked }), None, &[]))
        };
        let whole = Followed { stripes: 4, chunks: 12, ..Followed::default() };
        assert_eq!(with(whole), [""; 0]);
        assert_eq!(with(Followed { unprotected: 3, ..whole }), ["chunks without parity: 3"]);
        let narrow = "stripes with fewer parity chunks than parity:3+2 asks for: 1";
        assert_eq!(with(Followed { narrow: 1, ..whole }), [narrow]);
        let unfinished = sealed(Some(asked), None, &[]);
        assert_eq!(told(&unfinished), ["parity:3+2 is not complete"]);
        assert_eq!(told(&Manifest { state: State::Recording, ..unfinished }), [""; 0]);
    }

    #[test]
    fn a_manifest_without_members_that_were_away_reads_as_before() {
        let whole = sealed(None, None, &[]);
        let json = String::from_utf8(whole.to_json()).unwrap();
        assert!(!json.contains("away"), "{json}");
        assert_eq!(Manifest::from_json(json.as_bytes()).unwrap(), whole);
        let away = sealed(None, None, &["/c"]);
        assert_eq!(Manifest::from_json(&away.to_json()).unwrap(), away);
    }
}
