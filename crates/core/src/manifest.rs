//! The manifest of a scan: human-readable JSON, with one copy beside every stream on every member.
//!
//! The manifest is written when the scan is armed (`recording`) and again when it is sealed. The full account of each
//! stream, with its gaps, is in `account.json` beside it.

use std::fmt;
use std::path::PathBuf;

use fullbore_formats::framed::{FrameCodec, FrameKind};
use fullbore_formats::packets::PacketKind;
use fullbore_formats::panda::control::Settings;
use fullbore_formats::panda::{ConnectionTotals, Ending};
use fullbore_formats::samples::SampleLayout;
use fullbore_formats::vita49::listing::Listing;
use fullbore_time::Tai;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::account::{Account, CountedBy, NotTransferred, Presence, Terms, Verdict};
use crate::chunk_map::Renumbering;
use crate::clock_check::ClockOffset;
use crate::completeness::{OtherCounts, Planned};
use crate::device::BytesStream;
use crate::endpoint::{Engine, UdpSource};
use crate::layout::Geometry;
use crate::marker::Marker;
use crate::name::{Name, ScanName};
use crate::redundancy::{Followed, Redundancy, Scheme};

/// The version of the manifest's format; readers accept this one and the previous one.
pub const VERSION: u32 = 1;

/// The directory inside a stream's directory for everything except data.
pub const SIDE_DIRECTORY: &str = ".fullbore";

/// The manifest's file name in [`SIDE_DIRECTORY`].
pub const MANIFEST_FILE: &str = "manifest.json";

/// The account's file name in [`SIDE_DIRECTORY`].
pub const ACCOUNT_FILE: &str = "account.json";

/// The index's file name in [`SIDE_DIRECTORY`].
pub const INDEX_FILE: &str = "index";

/// The state of a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// Being recorded, or left unsealed by a process that died.
    Recording,
    /// Sealed by a stop.
    Sealed,
    /// Sealed by an abort: data still in memory is counted as overrun.
    Aborted,
    /// Sealed by `recover` from index and chunks.
    Recovered,
}

/// A disk of the disk set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Its UUID, stored in `.fullbore/member.json` at its root.
    pub uuid: Uuid,
    /// Its mount point when the scan was recorded.
    pub path: PathBuf,
    /// The reason why it stopped accepting data, if it did.
    pub failure: Option<String>,
    /// True if the member was written through the page cache because direct I/O is not supported.
    pub buffered: bool,
}

impl Member {
    /// The identity of a plain file, of standard output, or of a device without a file system: none is in a store.
    pub const PLAIN: Uuid = Uuid::max();

    /// True if it is a plain file, standard output, or a device without a file system.
    pub fn is_plain(&self) -> bool {
        self.uuid == Self::PLAIN
    }
}

/// A member of the disk set that is absent from the scan: it holds no data of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AbsentMember {
    /// Its UUID, if the expected member was known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uuid: Option<Uuid>,
    /// Its expected path.
    pub path: PathBuf,
    /// The reason for its absence.
    pub why: String,
}

/// A degraded condition of the disk set, independent of frame loss.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Degradation {
    /// A member is absent.
    Away(AbsentMember),
    /// A member stopped accepting data.
    Failed {
        /// Its mount point.
        path: PathBuf,
        /// The reason.
        why: String,
    },
    /// Redundancy was requested, but the completed part of it is unknown.
    Unfinished(Scheme),
    /// Some data chunks are in no stripe.
    Unprotected {
        /// The number of chunks.
        chunks: u64,
    },
    /// Some stripes have fewer parity chunks than requested.
    Narrow {
        /// The number of stripes.
        stripes: u64,
        /// The requested scheme.
        scheme: Scheme,
    },
}

impl fmt::Display for Degradation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Degradation::Away(AbsentMember { path, why, .. }) => {
                write!(f, "{} was away: {why}", path.display())
            }
            Degradation::Failed { path, why } => write!(f, "{} failed: {why}", path.display()),
            Degradation::Unfinished(scheme) => write!(f, "{scheme} is not complete"),
            Degradation::Unprotected { chunks } => write!(f, "chunks without parity: {chunks}"),
            Degradation::Narrow { stripes, scheme } => {
                write!(f, "stripes with fewer parity chunks than {scheme} asks for: {stripes}")
            }
        }
    }
}

/// The layout and the numbering of a stream's frames. In JSON, `name` is that of the format of the frames, or of another
/// format.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    rename_all = "kebab-case",
    tag = "name",
    expecting = "a format of a later version, or not a format"
)]
pub enum Format {
    /// Samples of a PandA, packed one after the other without frame heads.
    Panda {
        /// The PandA's header before the first of them, as received: the columns.
        header: String,
        /// The end of the acquisition, once it has ended.
        ending: Option<Ending>,
        /// The number of samples that the PandA reports, if it could be asked.
        captured: Option<u64>,
        /// The totals of each connection.
        connections: Vec<ConnectionTotals>,
        /// Sentences about losses and doubts.
        notes: Vec<String>,
        /// The settings of the PandA, if it could be asked.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        settings: Option<Box<Settings>>,
    },
    /// Datagrams of any other kind.
    Raw,
    /// Packets that tell their stream, as received, in order of arrival.
    #[serde(untagged)]
    Packets {
        /// The format of each.
        #[serde(rename = "name")]
        kind: PacketKind,
    },
    /// Frames that carry their own time, headers kept.
    #[serde(untagged)]
    Frames {
        /// The format of each.
        #[serde(rename = "name")]
        kind: FrameKind,
        /// Frames per second of each thread, given or learned.
        frames_per_second: Option<u64>,
        /// True if that number was derived from the frames themselves.
        derived: bool,
        /// The threads of the stream, in the order of their frames; empty: in order of arrival.
        threads: Vec<u16>,
    },
}

impl Format {
    /// Returns the codec of its frames, if they carry their own time, for frames within 500 days of an instant.
    pub fn codec(&self, near: Tai) -> Option<FrameCodec> {
        match self {
            Format::Frames { kind, .. } => Some(FrameCodec::new(*kind, near)),
            Format::Panda { .. } | Format::Packets { .. } | Format::Raw => None,
        }
    }

    /// The number by which frames of a source are counted that this version does not know.
    fn counted_by(&self) -> CountedBy {
        match self {
            Format::Packets { kind: PacketKind::Spead | PacketKind::Gvsp } => {
                CountedBy::SequenceField
            }
            Format::Frames { .. } | Format::Packets { .. } => CountedBy::FrameTime,
            Format::Panda { .. } => CountedBy::ServerCount,
            Format::Raw => CountedBy::Nothing,
        }
    }

    /// True if its frames carry their own time.
    pub fn is_frames(&self) -> bool {
        matches!(self, Format::Frames { .. })
    }
}

/// One stream of the scan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stream {
    /// Its name.
    pub name: Name,
    /// Its directory on every member.
    pub directory: String,
    /// The endpoint of the recording.
    pub source: String,
    /// The format of its frames.
    pub format: Format,
    /// Bytes before each frame that were received and not kept (a VTP packet number has 8).
    pub stripped_bytes: u32,
    /// Its samples, as its endpoint describes them. The headers of VDIF frames say it themselves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub samples: Option<SampleLayout>,
    /// The division of its bytes; `None` until the first frame arrives.
    pub geometry: Option<Geometry>,
    /// The fill for missing frames.
    pub fill: Fill,
    /// Blocks written.
    pub blocks: u64,
    /// Bytes written, fill included.
    pub bytes: u64,
    /// The summary of the account.
    pub account: Option<Summary>,
    /// What context packets say of the samples, and its changes, if it is a stream of such packets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<Box<Listing>>,
    /// The numbers of its chunk files, if they differ from those in the index.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub renamed: Option<Renumbering>,
}

impl Stream {
    /// Returns the frames per second of each of its threads, if the rate is known.
    pub fn frames_per_second_of_thread(&self) -> Option<u64> {
        match &self.format {
            Format::Frames { frames_per_second, .. } => *frames_per_second,
            Format::Panda { .. } | Format::Packets { .. } | Format::Raw => None,
        }
    }

    /// True if it is bytes without frames: from a pattern, a file, a pipe or a device.
    pub fn is_of_bytes(&self) -> bool {
        let bytes = self.geometry.is_none_or(|geometry| geometry.frame_bytes == 1);
        self.format == Format::Raw && bytes && BytesStream::is_meant(&self.source)
    }

    /// Returns the number by which its recorder counts its frames: the source says it, or the frames' own times if they
    /// are stored in order of arrival.
    pub fn counted_by(&self) -> CountedBy {
        match &self.format {
            Format::Frames { .. } if self.fill == Fill::Omit => CountedBy::FrameTime,
            Format::Packets { .. } => self.format.counted_by(),
            Format::Panda { .. } => CountedBy::ServerCount,
            Format::Raw if self.is_of_bytes() => CountedBy::Bytes,
            Format::Raw if self.fill == Fill::Omit => CountedBy::Nothing,
            format => {
                let sources = UdpSource::parse(&self.source).unwrap_or_default();
                sources.first().map_or_else(|| format.counted_by(), UdpSource::counted_by)
            }
        }
    }

    /// Returns the frames per second of all its threads together, if the rate is known.
    pub fn frames_per_second(&self, account: &Account) -> Option<u64> {
        let listed = match &self.format {
            Format::Frames { threads, .. } => threads.len(),
            Format::Panda { .. } | Format::Packets { .. } | Format::Raw => 0,
        };
        let threads = listed.max(account.flows.len()).max(1);
        self.frames_per_second_of_thread().map(|rate| rate.saturating_mul(threads as u64))
    }
}

/// The fill for missing frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind", content = "word")]
pub enum Fill {
    /// Frames that keep time, thread and station, and are marked invalid if their format can.
    Invalid,
    /// A 32-bit little-endian word repeated.
    Pattern(u32),
    /// No fill: frames follow in order of arrival.
    Omit,
}

/// An account without its lists.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    /// The terms of the balance.
    pub terms: Terms,
    /// The number by which frames were counted.
    pub counted_by: CountedBy,
    /// Facts that the numbers alone cannot show.
    pub presence: Vec<Presence>,
    /// Time of the first frame (UTC).
    pub first: Option<Tai>,
    /// Time of the last frame (UTC).
    pub last: Option<Tai>,
    /// The offset of these times from the host's clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock: Option<ClockOffset>,
    /// Facts beside the balance; `None` in a manifest of an earlier version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beside: Option<OtherCounts>,
    /// The verdict.
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
            beside: Some(OtherCounts::from(account)),
            verdict: account.verdict,
        }
    }
}

/// The source of a scan's times, if the recorder's own times are lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Times {
    /// Arrival of its first and last frame, by the host's clock.
    Received,
    /// The times in its first and last frame.
    Frames,
    /// Creation of its first chunk file, and last change of the last one.
    Files,
}

/// The CPU affinity and priority of a recorder thread, as reported by the kernel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Thread {
    /// Its name.
    pub name: String,
    /// Cores that it may run on.
    pub cpus: Vec<usize>,
    /// Its scheduling policy: `other`, `fifo` and so on.
    pub policy: String,
    /// Its priority under `fifo`.
    pub priority: i32,
    /// Its niceness under other policies.
    pub nice: i32,
}

/// The pages of the block memory, as reported by the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pages {
    /// Total bytes.
    pub bytes: u64,
    /// Bytes in reserved huge pages (`vm.nr_hugepages`).
    pub reserved_bytes: u64,
    /// Bytes in transparent huge pages.
    pub transparent_bytes: u64,
    /// Bytes that are locked, or never swapped because they are reserved.
    pub locked_bytes: u64,
}

impl Pages {
    /// Returns the bytes in huge pages of either kind.
    pub fn huge_bytes(&self) -> u64 {
        self.reserved_bytes.saturating_add(self.transparent_bytes)
    }
}

/// The state of the recorder when it was armed, for comparing a scan that has overruns with one that has none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostSetup {
    /// The reason for the placement of threads.
    pub why: String,
    /// Capture threads, then writers.
    pub threads: Vec<Thread>,
    /// Block memory, if the kernel reported it.
    pub pages: Option<Pages>,
    /// How each source that does not simply use its socket receives.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub engines: Vec<SourceEngine>,
    /// The settings of the host that can cost frames, or could be better, as `fullbore doctor` judges them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub findings: Vec<HostFinding>,
}

/// A setting of the host that can cost frames, or could be better.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostFinding {
    /// Its name in `fullbore doctor`, as `rx-ring`.
    pub check: String,
    /// The part of the host: an interface, a disk, `kernel`.
    pub subject: String,
    /// True if it can cost frames; false if it could be better.
    pub costs_frames: bool,
    /// What was found.
    pub found: String,
}

/// The way in which a source receives. Its text says it in words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceEngine {
    /// Its endpoint.
    pub source: String,
    /// The engine in use.
    pub engine: Engine,
    /// The reason.
    pub why: String,
}

impl fmt::Display for SourceEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let engine = match self.engine {
            Engine::Packet => "a packet ring",
            Engine::Xdp => "XDP sockets",
            Engine::Udp | Engine::Auto => "its socket",
        };
        write!(f, "received from {engine}: {}", self.why)
    }
}

/// The origin of a scan that was copied from another site.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Copied {
    /// The host that sent it.
    pub host: String,
    /// The fingerprint of that host's key, as hexadecimal digits.
    pub key: String,
    /// Time when the copy was begun.
    pub begun: Tai,
    /// Time when the last block and the account had arrived; `None` while the copy is incomplete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completed: Option<Tai>,
    /// The streams of the source, while the copy is incomplete and after it was sealed so.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub source: Vec<SourceStream>,
    /// Blocks that the source could not read when it last tried.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unreadable_blocks: u64,
}

/// A stream of the scan that a copy is made of, as its source described it last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceStream {
    /// Blocks recorded so far.
    pub blocks: u64,
    /// Bytes recorded so far.
    pub bytes: u64,
    /// The summary of the account; none while it is being recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub account: Option<Summary>,
}

impl SourceStream {
    /// Returns the part that is not in a copy of this many blocks and bytes.
    pub fn not_transferred(&self, blocks: u64, bytes: u64) -> NotTransferred {
        let (of_blocks, of_bytes) = (self.blocks.max(blocks), self.bytes.max(bytes));
        NotTransferred {
            blocks: of_blocks - blocks,
            bytes: of_bytes - bytes,
            of_blocks,
            of_bytes,
            was_recording: self.account.is_none(),
        }
    }
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// What was sent on of a stream while it was recorded, in frames.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Forwarded {
    /// The stream.
    pub stream: String,
    /// The destination.
    pub to: String,
    /// Frames that the kernel took.
    pub sent: u64,
    /// Frames that were not sent: the sender was behind, or the destination was not reached.
    pub skipped: u64,
    /// Frames that the network refused.
    pub refused: u64,
    /// Connections that were made again after one was lost.
    pub reconnects: u64,
}

/// A scan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// [`VERSION`].
    pub version: u32,
    /// UUID of the scan; its index records carry it in their checksums.
    pub uuid: Uuid,
    /// Session and scan.
    pub scan: ScanName,
    /// The state of the scan.
    pub state: State,
    /// Program and version that wrote the manifest.
    pub software: String,
    /// The host of the recording.
    pub host: String,
    /// The planned start and end, if they were given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub planned: Option<Planned>,
    /// Time when all memory was mapped and faulted in and all sources were listening.
    pub armed: Tai,
    /// Time when the last frame was taken.
    pub stopped: Option<Tai>,
    /// The source of those two times, if they are not the recorder's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub times: Option<Times>,
    /// The placement of the recorder's threads and memory, if it was stored.
    #[serde(alias = "rig", default, skip_serializing_if = "Option::is_none")]
    pub host_setup: Option<HostSetup>,
    /// The redundancy that replaces lost members, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub redundancy: Option<Redundancy>,
    /// The disk set.
    pub members: Vec<Member>,
    /// The absent members of the disk set.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub away: Vec<AbsentMember>,
    /// The streams; a record's stream number in the index is the position here.
    pub streams: Vec<Stream>,
    /// Markers that users set, in the order of time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub markers: Vec<Marker>,
    /// The streams that were sent on. The recorder adds them after the seal, when their last frames are sent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub forwarded: Vec<Forwarded>,
    /// The origin, if this is a copy that another site sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copied: Option<Copied>,
}

/// An unusable manifest.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The text is not JSON, or not a manifest.
    #[error("not a manifest: {0}")]
    Form(#[from] serde_json::Error),
    /// A later version wrote the manifest.
    #[error("the manifest has version {found}, and this program reads up to {VERSION}")]
    Version {
        /// The version found.
        found: u32,
    },
}

impl Manifest {
    /// Parses a manifest's JSON.
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

    /// Returns the manifest as formatted JSON.
    pub fn to_json(&self) -> Vec<u8> {
        let mut json = serde_json::to_vec_pretty(self).expect("a manifest has only plain fields");
        json.push(b'\n');
        json
    }

    /// Returns the worst verdict of its streams, once each has one.
    pub fn verdict(&self) -> Option<Verdict> {
        let verdicts = self.streams.iter().map(|s| s.account.as_ref().map(|a| a.verdict));
        verdicts.collect::<Option<Vec<_>>>()?.into_iter().max()
    }

    /// Returns the degraded conditions of its disk set. For a running scan, those known so far.
    pub fn wanting(&self) -> Vec<Degradation> {
        let away = self.away.iter().cloned().map(Degradation::Away);
        let failed = self.members.iter().filter_map(|member| {
            let (path, why) = (member.path.clone(), member.failure.clone()?);
            Some(Degradation::Failed { path, why })
        });
        away.chain(failed).chain(self.redundancy_wanting()).collect()
    }

    fn redundancy_wanting(&self) -> Vec<Degradation> {
        let Some(redundancy) = self.redundancy.filter(|_| self.state != State::Recording) else {
            return Vec::new();
        };
        let scheme = redundancy.scheme();
        let Some(Followed { unprotected, narrow, .. }) = redundancy.followed else {
            return vec![Degradation::Unfinished(scheme)];
        };
        let chunks = (unprotected > 0).then_some(Degradation::Unprotected { chunks: unprotected });
        let stripes = (narrow > 0).then_some(Degradation::Narrow { stripes: narrow, scheme });
        chunks.into_iter().chain(stripes).collect()
    }

    /// Returns the origin of a copy that has not arrived completely. Its state is [`State::Recording`].
    pub fn incomplete_copy(&self) -> Option<&Copied> {
        let copied = self.copied.as_ref().filter(|it| it.completed.is_none());
        copied.filter(|_| self.state == State::Recording)
    }

    /// Returns the bytes written in all streams.
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
        let away = away.iter().map(|path| AbsentMember {
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
            host_setup: None,
            redundancy,
            members: vec![member("/a", None), member("/b", failure)],
            away: away.collect(),
            streams: Vec::new(),
            markers: Vec::new(),
            forwarded: Vec::new(),
            copied: None,
        }
    }

    fn told(manifest: &Manifest) -> Vec<String> {
        manifest.wanting().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn the_host_setup_of_older_recordings_is_read() {
        let mut newer = sealed(None, None, &[]);
        newer.host_setup = Some(HostSetup {
            why: "auto".into(),
            threads: vec![],
            pages: None,
            engines: vec![],
            findings: vec![],
        });
        let text = serde_json::to_string(&newer).unwrap();
        let older = text.replace("\"host_setup\":", "\"rig\":");
        assert_ne!(older, text);
        assert_eq!(serde_json::from_str::<Manifest>(&older).unwrap(), newer);
    }

    #[test]
    fn a_manifest_without_counts_of_forwarding_is_read_and_written_as_before() {
        let plain = sealed(None, None, &[]);
        let json = plain.to_json();
        assert!(!String::from_utf8_lossy(&json).contains("forwarded"));
        assert_eq!(Manifest::from_json(&json).unwrap(), plain);
        let forwarded = vec![Forwarded { stream: "a".into(), ..Forwarded::default() }];
        let counted = Manifest { forwarded, ..plain };
        assert_eq!(Manifest::from_json(&counted.to_json()).unwrap(), counted);
    }

    #[test]
    fn formats_keep_their_json() {
        for json in [
            r#"{"name":"vdif","frames_per_second":32000,"derived":true,"threads":[0,3]}"#,
            r#"{"name":"vdif","frames_per_second":null,"derived":false,"threads":[]}"#,
            r#"{"name":"panda","header":"a","ending":null,"captured":7,"connections":[],"notes":["b"]}"#,
            r#"{"name":"vita49"}"#,
            r#"{"name":"spead"}"#,
            r#"{"name":"gvsp"}"#,
            r#"{"name":"raw"}"#,
        ] {
            let format: Format = serde_json::from_str(json).unwrap();
            assert_eq!(serde_json::to_string(&format).unwrap(), json);
        }
        let error = serde_json::from_str::<Format>(r#"{"name":"coaxpress"}"#).unwrap_err();
        assert!(error.to_string().contains("format"), "{error}");
    }

    #[test]
    fn a_disk_set_is_found_wanting_of_members_and_of_parity() {
        assert_eq!(told(&sealed(None, None, &[])), [""; 0]);
        assert_eq!(told(&sealed(None, Some("full"), &[])), ["/b failed: full"]);
        assert_eq!(told(&sealed(None, None, &["/c"])), ["/c was away: it is not mounted"]);
        let requested = Redundancy::of(Scheme { data: 3, parity: 2 });
        let with = |followed: Followed| {
            told(&sealed(Some(Redundancy { followed: Some(followed), ..requested }), None, &[]))
        };
        let whole = Followed { stripes: 4, chunks: 12, ..Followed::default() };
        assert_eq!(with(whole), [""; 0]);
        assert_eq!(with(Followed { unprotected: 3, ..whole }), ["chunks without parity: 3"]);
        let narrow = "stripes with fewer parity chunks than parity:3+2 asks for: 1";
        assert_eq!(with(Followed { narrow: 1, ..whole }), [narrow]);
        let unfinished = sealed(Some(requested), None, &[]);
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
