//! A trigger as a user asks for it.

use std::borrow::Cow;
use std::path::PathBuf;
use std::time::Duration;

use fullbore_core::hint::Hint;
use fullbore_core::marker::{self, Text};
use fullbore_core::name::{self, ScanName};
use fullbore_linux::clock::Clock;
use fullbore_store::catalogue::{self, ScanState};
use fullbore_time::Tai;

use super::RingName;
use super::keeper::rings;
use super::source::{AFTER, BEFORE, ns};
use super::trigger::{Trigger, TriggerError, list};

/// What to keep of a circular recording.
#[derive(Clone, Debug, Default)]
pub struct TriggerRequest {
    /// The recording, by its name or an unambiguous beginning of it.
    pub recording: String,
    /// The time before the moment. Default: 10 s.
    pub before: Option<Duration>,
    /// The time after the moment. Default: 5 s.
    pub after: Option<Duration>,
    /// The moment, by the clock of this host. Default: now.
    pub at: Option<Tai>,
    /// The name of the kept scan, without its session. Default: from the recording and the moment.
    pub name: Option<String>,
    /// The note, which becomes a marker. Default: `trigger`.
    pub note: Option<String>,
}

/// A request that cannot be met.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    /// The store cannot be listed.
    #[error(transparent)]
    Catalogue(#[from] catalogue::Error),
    /// No circular recording has the name.
    #[error("there is no circular recording `{text}`")]
    NoRecording {
        /// The name as given.
        text: String,
    },
    /// Several circular recordings begin so.
    #[error("`{text}` is ambiguous: {}", among.join(", "))]
    Ambiguous {
        /// The name as given.
        text: String,
        /// The recordings.
        among: Vec<String>,
    },
    /// The name of the scan is invalid.
    #[error(transparent)]
    Name(#[from] name::Error),
    /// The name is that of a scan.
    #[error("there is a scan {scan} already")]
    Taken {
        /// The name.
        scan: ScanName,
    },
    /// The name is that of a piece of a circular recording.
    #[error("{scan} would be the name of a piece")]
    Piece {
        /// The name.
        scan: ScanName,
    },
    /// The note is invalid.
    #[error(transparent)]
    Note(#[from] marker::Error),
    /// The trigger cannot be written.
    #[error(transparent)]
    Trigger(#[from] TriggerError),
}

impl Hint for RequestError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        match self {
            Self::NoRecording { .. } => Some("`fullbore ls` lists the pieces of each".into()),
            Self::Taken { .. } | Self::Piece { .. } => Some("choose another name".into()),
            Self::Trigger(error) => error.hint(),
            Self::Catalogue(_) | Self::Ambiguous { .. } | Self::Name(_) | Self::Note(_) => None,
        }
    }
}

impl TriggerRequest {
    /// Sets the trigger. It is on the disk when this returns; [`settle`](super::settle) or the recorder makes the scan.
    ///
    /// # Errors
    ///
    /// There is no such recording, the name is taken, or no member accepts the trigger.
    pub fn set(&self, roots: &[PathBuf]) -> Result<Trigger, RequestError> {
        let ring = self.find(roots)?;
        let at = self.at.unwrap_or_else(|| Clock::new().now());
        let from = at.plus_ns(-ns(self.before.unwrap_or(BEFORE)));
        let to = at.plus_ns(ns(self.after.unwrap_or(AFTER)));
        let scan = match &self.name {
            Some(name) => ScanName { session: ring.0.session.clone(), scan: name.parse()? },
            None => ring.kept(at)?,
        };
        if RingName::of_piece(&scan).is_some() {
            return Err(RequestError::Piece { scan });
        }
        // A command that is repeated continues the trigger that waits.
        if let Some(waiting) = list(roots, &ring).into_iter().find(|it| it.keep_as == scan) {
            return Ok(waiting);
        }
        if exists(roots, &scan)? {
            return Err(RequestError::Taken { scan });
        }
        let note = Text::typed(self.note.as_deref().unwrap_or("trigger"))?;
        let trigger = Trigger::new(&ring, at, (from, to), scan, note);
        trigger.put(roots)?;
        Ok(trigger)
    }

    /// Finds the recording by its name or the beginning of it.
    fn find(&self, roots: &[PathBuf]) -> Result<RingName, RequestError> {
        let text = self.recording.clone();
        let all = rings(roots)?;
        if let Some(exact) = all.iter().find(|ring| ring.to_string() == text) {
            return Ok(exact.clone());
        }
        let begin_so = all.into_iter().filter(|ring| ring.to_string().starts_with(&text));
        let mut found: Vec<RingName> = begin_so.collect();
        match found.len() {
            0 => Err(RequestError::NoRecording { text }),
            1 => Ok(found.remove(0)),
            _ => {
                let among = found.iter().map(RingName::to_string).collect();
                Err(RequestError::Ambiguous { text, among })
            }
        }
    }
}

/// True if the store has a scan of this name.
///
/// # Errors
///
/// The store cannot be listed.
pub fn exists(roots: &[PathBuf], scan: &ScanName) -> Result<bool, catalogue::Error> {
    let name = scan.to_string();
    Ok(catalogue::list(roots)?.entries.iter().any(|entry| entry.name == name))
}

/// True if the store has a sealed scan of this name.
///
/// # Errors
///
/// The store cannot be listed.
pub fn is_kept(roots: &[PathBuf], scan: &ScanName) -> Result<bool, catalogue::Error> {
    let name = scan.to_string();
    let is_open = |state| matches!(state, ScanState::Recording | ScanState::Unsealed);
    let entries = catalogue::list(roots)?.entries;
    Ok(entries.iter().any(|entry| entry.name == name && !is_open(entry.state)))
}

#[cfg(test)]
mod tests {
    use fullbore_store::testing::{Store, StreamPlan};

    use super::*;

    fn request(recording: &str) -> TriggerRequest {
        TriggerRequest { recording: recording.into(), ..TriggerRequest::default() }
    }

    #[test]
    fn request_finds_one_recording_and_a_free_name() {
        let store = Store::new(1);
        for scan in ["s_sky-20261127T090000Z", "s_sun-20261127T090000Z-2", "s_old"] {
            store.lay_down(scan, &[StreamPlan::vdif("a").frames(64)]);
        }
        let roots = store.roots();
        let set = |request: TriggerRequest| request.set(&roots);
        assert!(matches!(set(request("s_s")), Err(RequestError::Ambiguous { .. })));
        assert!(matches!(set(request("s_old")), Err(RequestError::NoRecording { .. })));
        let named = |name: &str| TriggerRequest { name: Some(name.into()), ..request("s_sk") };
        assert!(matches!(set(named("old")), Err(RequestError::Taken { .. })));
        let piece = "sky-20261127T090000Z-9";
        assert!(matches!(set(named(piece)), Err(RequestError::Piece { .. })));
        assert!(matches!(set(named("../x")), Err(RequestError::Name(_))));
        let trigger = set(named("new")).unwrap();
        assert_eq!(trigger.keep_as.to_string(), "s_new");
        assert_eq!(trigger.to.since(trigger.from), 15_000_000_000);
        assert_eq!(set(named("new")).unwrap(), trigger, "it waits");
    }
}
