//! What a recorder says of itself: the lines of `record --json`, as far as a station needs them.
//!
//! `docs/reference/events.md` lists all of them. Fields have the same names here, so that an answer of the daemon reads
//! like the line of the recorder.

use fullbore_core::name::ScanName;
use fullbore_time::Tai;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A line of a recorder.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum Report {
    /// Memory is mapped, and sockets are open.
    Armed {
        /// The first scan.
        scan: ScanName,
        /// Its planned start.
        begins: Option<Tai>,
    },
    /// The planned start is awaited.
    Awaiting {
        /// The first scan.
        scan: ScanName,
        /// Its start.
        begins: Tai,
    },
    /// Of a schedule: the next scan is awaited.
    Waiting {
        /// Its start.
        start: Tai,
    },
    /// Of a schedule: the account of the session, which is the last event.
    Session,
    /// The state of the recording.
    Progress(Progress),
    /// A problem that does not end the recording.
    Warning {
        /// What happened.
        text: String,
    },
    /// A scan is finished.
    Sealed(Finished),
    /// A scan is over, and no member took its manifest.
    Unsealed {
        /// The reason.
        why: String,
        /// The scan.
        #[serde(flatten)]
        finished: Finished,
    },
    /// Any other line.
    #[serde(other)]
    Other,
}

impl Report {
    /// Reads a line. `None` if it is not an event, such as a line that was cut when nobody read it.
    pub fn of_line(line: &[u8]) -> Option<Self> {
        serde_json::from_slice(line).ok()
    }
}

/// The end of a scan.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Finished {
    manifest: Named,
    /// Whether it is complete; `None` if its frames cannot show a loss.
    pub complete: Option<bool>,
    /// The first line of its account.
    pub headline: String,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
struct Named {
    scan: ScanName,
}

impl Finished {
    /// The scan.
    pub fn scan(&self) -> &ScanName {
        &self.manifest.scan
    }
}

/// The state of a recording, several times a second.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Progress {
    /// `recording`, `stopping` or `aborting`.
    pub phase: Said,
    /// The scan that is being recorded.
    #[schema(value_type = crate::http::schema::ScanName)]
    pub scan: ScanName,
    /// Seconds since the scan began.
    pub seconds: f64,
    /// Bytes received in the scan.
    pub bytes: u64,
    /// Bytes of the scan that are safe on disk.
    pub durable_bytes: u64,
    /// The streams.
    pub streams: Vec<StreamState>,
    /// The members of the disk set.
    pub members: Vec<MemberState>,
    /// Bytes free on all members that take data.
    pub free_bytes: u64,
    /// Seconds until the limit of the scan, if it has one.
    pub seconds_left: Option<f64>,
    /// Seconds until the disk set is full at this rate.
    pub seconds_until_full: Option<f64>,
}

/// The phase that a recorder reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Said {
    /// Frames are recorded.
    Recording,
    /// Held data is written, and scans are sealed.
    Stopping,
    /// Held data is counted and dropped.
    Aborting,
}

/// The state of a stream.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct StreamState {
    /// The name.
    pub name: String,
    /// True until the first frame.
    pub silent: bool,
    /// Frames that arrived and have a place.
    pub frames: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Bytes per second since the last report.
    pub rate: u64,
    /// Frames that did not reach this host.
    pub missing: u64,
    /// Frames that arrived when no block was free.
    pub overrun: u64,
    /// Frames that failed their own check.
    pub damaged: u64,
    /// Frames that arrived after they were counted as missing.
    pub late: u64,
    /// Datagrams that are not frames of this stream.
    pub foreign: u64,
    /// The most blocks in use at once, and the number of blocks.
    pub high_water: (u64, u64),
    /// Blocks in use.
    pub used_blocks: u64,
    /// Bytes from the beginning of the stream that are safe on disk.
    pub durable_bytes: u64,
    /// Seconds for which a sender had to wait because no block was free.
    pub held_seconds: f64,
}

impl StreamState {
    /// Frames of the stream that are not recorded.
    pub fn lost(&self) -> u64 {
        self.missing + self.overrun + self.damaged + self.late
    }
}

/// The state of a member while it is recorded onto.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct MemberState {
    /// Its directory.
    pub path: String,
    /// Bytes written.
    pub written_bytes: u64,
    /// Bytes per second since the last report.
    pub rate: u64,
    /// Bytes handed to it and not yet written.
    pub backlog_bytes: u64,
    /// Bytes free on it.
    pub free_bytes: u64,
    /// The longest write of a block in nanoseconds.
    pub longest_write_ns: u64,
    /// Why it takes no more data.
    pub failure: Option<String>,
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A line as the recorder prints it.
    pub(crate) const PROGRESS: &str = r#"{"event":"progress","phase":"recording","scan":{"session":"s","scan":"a"},
        "seconds":1.5,"bytes":80,"durable_bytes":40,"streams":[{"name":"46220","silent":false,"frames":8,"bytes":80,"rate":53,
        "missing":1,"overrun":2,"damaged":3,"late":4,"foreign":0,"out_of_window":0,"unrecorded":0,"excluded":0,
        "high_water":[3,16],"used_blocks":1,"durable_bytes":40,"held_seconds":0.0}],"members":[{"path":"/m0","buffered":false,
        "written_bytes":40,"rate":26,"backlog_bytes":0,"free_bytes":1000,"longest_write_ns":5,"failure":null}],
        "free_bytes":1000,"seconds_left":null,"seconds_until_full":37.7}"#;

    #[test]
    fn a_line_of_progress_is_read() {
        let Some(Report::Progress(progress)) = Report::of_line(PROGRESS.as_bytes()) else {
            panic!()
        };
        assert_eq!(progress.scan.to_string(), "s_a");
        assert_eq!((progress.phase, progress.streams[0].lost()), (Said::Recording, 10));
        assert_eq!(progress.members[0].path, "/m0");
    }

    #[test]
    fn other_events_and_broken_lines_are_told_apart() {
        assert_eq!(Report::of_line(br#"{"event":"memory","bytes":5}"#), Some(Report::Other));
        let cut = &PROGRESS.as_bytes()[..PROGRESS.len() / 2];
        for broken in [b"".as_slice(), b"x", b"{}", b"{\"event\":\"progress\"}", cut] {
            assert_eq!(Report::of_line(broken), None);
        }
        let sealed = br#"{"event":"sealed","manifest":{"scan":{"session":"s","scan":"a"},"x":1},"complete":true,
            "headline":"COMPLETE: all 8 frames"}"#;
        let Some(Report::Sealed(finished)) = Report::of_line(sealed) else { panic!() };
        assert_eq!((finished.scan().to_string().as_str(), finished.complete), ("s_a", Some(true)));
    }
}
