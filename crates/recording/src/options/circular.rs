//! The options of a circular recording.

use std::path::PathBuf;

use fullbore_core::name::{Name, ScanName};
use fullbore_core::retention::Retention;
use fullbore_linux::clock::Clock;

use super::target::{scan_of, session_of};
use super::{OptionError, RecordingOptions};
use crate::circular::{Keeper, RingName, TriggerSource};
use crate::retention::RetentionThread;

impl RecordingOptions {
    /// The thread that removes old scans while these options are recorded into a store with these members; `None` if all
    /// scans stay.
    ///
    /// # Errors
    ///
    /// A source of triggers is invalid or cannot be opened, or the thread cannot start.
    pub fn retention_thread(
        &self,
        members: Vec<PathBuf>,
    ) -> Result<Option<RetentionThread>, OptionError> {
        let started = match (self.circular, self.keep) {
            (Some(limit), _) => {
                let sources = self.trigger_sources()?;
                let keeper = Keeper::new(members, self.ring()?, limit, &sources)?;
                RetentionThread::circular(keeper)
            }
            (None, Some(keep)) => RetentionThread::start(members, keep),
            (None, None) => return Ok(None),
        };
        started.map(Some).map_err(OptionError::Retention)
    }

    /// The name of the first piece of a circular recording.
    pub(super) fn first_piece(&self) -> Result<ScanName, OptionError> {
        let error = |source| OptionError::Name { option: "--scan", source };
        self.ring()?.first_piece(Clock::new().now()).map_err(error)
    }

    /// Checks the sources of triggers of a circular recording, and that it can hold what they keep.
    pub(super) fn trigger_sources(&self) -> Result<Vec<TriggerSource>, OptionError> {
        let parsed = self.trigger.iter().map(|text| text.parse::<TriggerSource>());
        let sources = parsed.collect::<Result<Vec<_>, _>>()?;
        if let Some(Retention::Age(length)) = self.circular
            && let Some(source) = sources.iter().find(|it| it.before() > length)
        {
            return Err(OptionError::TriggerBeforeBegin { text: source.to_string(), length });
        }
        Ok(sources)
    }

    fn ring(&self) -> Result<RingName, OptionError> {
        let session: Name = session_of(self.session.as_deref().unwrap_or_default())?;
        let scan = scan_of(self.scan.as_deref().unwrap_or_default())?;
        Ok(RingName(ScanName { session, scan }))
    }
}
