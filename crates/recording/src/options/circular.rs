//! The options of a circular recording.

use std::path::PathBuf;
use std::time::Duration;

use fullbore_core::name::{Name, ScanName};
use fullbore_core::retention::Retention;
use fullbore_linux::clock::Clock;
use fullbore_store::Member;

use super::target::{scan_of, session_of};
use super::{OptionError, RecordingOptions};
use crate::circular::{
    HOLD_OFF, InMemory, Keeper, RingName, TriggerSource, TriggerTimes, make_in_memory,
    roots_in_memory,
};
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
                let roots = if self.circular_in.is_some() { self.store.clone() } else { members };
                let keeper = Keeper::new(roots, self.ring()?, limit, &sources);
                let mut keeper = keeper.map_err(OptionError::Trigger)?;
                if let Some(place) = self.circular_in {
                    place.check().map_err(OptionError::Memory)?;
                    // Triggers, and what they keep, are in the store.
                    for path in &self.store {
                        Member::open(path)?;
                    }
                    let made = make_in_memory(&self.store, &self.ring()?);
                    keeper = keeper.in_memory(made.map_err(OptionError::Memory)?, place.size.0);
                }
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

    /// The members that the pieces are on, if they are in memory: these of the store are for what triggers keep.
    pub(super) fn members_in_memory(
        &self,
        members: &[PathBuf],
    ) -> Result<Option<(InMemory, Vec<PathBuf>)>, OptionError> {
        let Some(place) = self.circular_in else { return Ok(None) };
        Ok(Some((place, roots_in_memory(members, &self.ring()?))))
    }

    fn ring(&self) -> Result<RingName, OptionError> {
        let session: Name = session_of(self.session.as_deref().unwrap_or_default())?;
        let scan = scan_of(self.scan.as_deref().unwrap_or_default())?;
        Ok(RingName(ScanName { session, scan }))
    }
}
