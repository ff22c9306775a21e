//! The options of a circular recording.

use std::path::PathBuf;
use std::time::Duration;

use fullbore_core::name::{Name, ScanName};
use fullbore_core::retention::Retention;
use fullbore_linux::clock::Clock;

use super::target::{scan_of, session_of};
use super::{OptionError, RecordingOptions};
use crate::circular::{HOLD_OFF, Keeper, RingName, TriggerSource, TriggerTimes};
use crate::retention::RetentionThread;

/// The longest trigger of a condition while a size of the newest data is kept.
const LONGEST_OF_SIZE: Duration = Duration::from_secs(60);

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
                let keeper = Keeper::new(members, self.ring()?, limit, &sources);
                let keeper = keeper.map_err(OptionError::Trigger)?;
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
        let own = TriggerTimes::default();
        let (before, after) = (self.before.unwrap_or(own.before), self.after.unwrap_or(own.after));
        let times = TriggerTimes { before, after };
        let hold_off = self.hold_off.unwrap_or(HOLD_OFF);
        let longest = match self.circular {
            Some(Retention::Age(length)) => length,
            Some(Retention::Size(_)) | None => LONGEST_OF_SIZE,
        };
        let parsed = self.trigger.iter().map(|text| TriggerSource::endpoint(text, times));
        let mut sources = parsed.collect::<Result<Vec<_>, _>>().map_err(OptionError::Trigger)?;
        for text in &self.trigger_on {
            let source = TriggerSource::samples(text, times, hold_off, longest);
            sources.push(source.map_err(OptionError::TriggerOn)?);
        }
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
