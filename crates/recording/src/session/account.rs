//! The account of a session: the outcome of each scan, and their sum.

use std::path::PathBuf;
use std::sync::mpsc;
use std::time::Duration;

use fullbore_core::account::{Terms, Verdict};
use fullbore_core::completeness::Completeness;
use fullbore_core::name::Name;
use fullbore_store::sessions;
use fullbore_time::Tai;
use serde::Serialize;

/// The tolerance for a late start or an early end of a scan, in nanoseconds.
pub const SHORT_NS: i64 = 250_000_000;

/// The longest wait of the session's account for a disk.
const PATIENCE: Duration = Duration::from_secs(2);

/// One scan of the session.
#[derive(Clone, Debug, Serialize)]
pub struct ScanEntry {
    /// Its name in the schedule.
    pub scan: Name,
    /// Its planned start.
    pub start: Tai,
    /// The name under which it, or the rest of it, was recorded, if its own was taken.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recorded_as: Option<Name>,
    /// The outcome.
    #[serde(flatten)]
    pub came: ScanOutcome,
}

/// The outcome of one scan of the session.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "outcome", rename_all = "kebab-case")]
pub enum ScanOutcome {
    /// The scan was recorded, with these totals over its streams.
    Recorded {
        /// Bytes of all streams.
        bytes: u64,
        /// The sum of the terms of all streams.
        terms: Terms,
        /// The least certain verdict of a stream.
        verdict: Option<Verdict>,
        /// The completeness of the scan.
        #[serde(flatten)]
        completeness: Option<Completeness>,
        /// Seconds from the planned start until it was armed.
        late_seconds: f64,
        /// The missing seconds, if it was stopped before its end.
        #[serde(skip_serializing_if = "Option::is_none")]
        cut_short_seconds: Option<f64>,
    },
    /// The scan was in the store when the session was restarted; from the manifests of its parts.
    RecordedBefore {
        /// Bytes of all parts.
        bytes: u64,
        /// The sum of the terms of all parts.
        terms: Terms,
        /// The least certain verdict of a part.
        verdict: Option<Verdict>,
        /// The completeness of the least complete part.
        #[serde(flatten)]
        completeness: Option<Completeness>,
        /// Its parts, by name.
        parts: Vec<Name>,
        /// The unsealed parts.
        unsealed: Vec<Name>,
    },
    /// The scan could not be recorded, or not be sealed; totals of the data that exists.
    Failed {
        /// The reason.
        why: String,
        /// Bytes of all streams.
        bytes: u64,
        /// The sum of the terms of all streams.
        terms: Terms,
    },
    /// The scan was over before it could be armed.
    Missed,
}

/// The account of a whole session.
#[derive(Clone, Debug, Serialize)]
pub struct SessionAccount {
    event: &'static str,
    /// The name of the session.
    pub session: Name,
    /// The time at which the recorder was started for it.
    pub begun: Tai,
    /// The scans that are over, in their order.
    pub scans: Vec<ScanEntry>,
    /// Scans not started when the session was stopped.
    pub left: Vec<Name>,
    /// Bytes of all scans.
    pub bytes: u64,
    /// The sum of the terms of all scans.
    pub terms: Terms,
}

impl SessionAccount {
    /// An account without scans.
    pub fn new(session: Name, begun: Tai) -> Self {
        let (scans, left, terms) = (Vec::new(), Vec::new(), Terms::default());
        Self { event: "session", session, begun, scans, left, bytes: 0, terms }
    }

    /// Adds the data of a scan.
    pub fn add(&mut self, bytes: u64, terms: &Terms) {
        self.bytes += bytes;
        self.terms.add(terms);
    }
}

/// Writes the growing account of the session into the store, on separate threads: a stalled disk delays no scan.
pub(super) struct SessionWriter {
    members: Vec<PathBuf>,
    /// The result of the latest write.
    last: Option<mpsc::Receiver<Result<PathBuf, String>>>,
}

impl SessionWriter {
    pub fn new(members: Vec<PathBuf>) -> Self {
        Self { members, last: None }
    }

    /// Writes the current account, unless the previous write is still running.
    pub fn write(&mut self, account: SessionAccount) {
        let answered = |last: &mpsc::Receiver<_>| last.try_recv() != Err(mpsc::TryRecvError::Empty);
        if self.last.as_ref().is_none_or(answered) {
            self.last = self.begin(account);
        }
    }

    fn begin(&self, account: SessionAccount) -> Option<mpsc::Receiver<Result<PathBuf, String>>> {
        let members = self.members.clone();
        let (tell, told) = mpsc::channel();
        let put = move || {
            let mut json = serde_json::to_vec_pretty(&account).expect("it has only plain fields");
            json.push(b'\n');
            let path = sessions::put(&members, &account.session, account.begun, &json);
            // The receiver may be gone.
            let _ = tell.send(path.map_err(|error| error.to_string()));
        };
        std::thread::Builder::new().name("books".into()).spawn(put).ok().map(|_| told)
    }

    /// Writes the final account. Returns its path.
    pub fn close(mut self, account: SessionAccount) -> Result<PathBuf, String> {
        let silent = || "its disk does not answer".to_owned();
        if let Some(last) = self.last.take()
            && last.recv_timeout(PATIENCE) == Err(mpsc::RecvTimeoutError::Timeout)
        {
            return Err(silent());
        }
        let told = self.begin(account).ok_or("no thread could be started")?;
        told.recv_timeout(PATIENCE).unwrap_or_else(|_| Err(silent()))
    }
}
