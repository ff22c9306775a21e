//! Preflight of a session: members, ports, memory, names, and space for all scans.

use std::time::Duration;

use fullbore_core::hint::explained;
use fullbore_core::name::{Name, ScanName};
use fullbore_core::schedule::Planned;
use fullbore_core::schedule::room::room;
use fullbore_engine::recorder::{
    Event, Limit, RecordError, RecordingConfig, Sealed, free_bytes, preflight, slow_disks,
};
use fullbore_linux::clock::Clock;
use fullbore_store::resume::TakenNames;
use fullbore_time::Tai;

use super::Session;
use super::error::SessionError;
use super::events::{SessionEvent, SessionEventHandler, count, in_a_row};

/// The shortest scan from which a rate is taken.
const LONG_ENOUGH: Duration = Duration::from_millis(500);

/// The forecast of space on the disk set.
#[derive(Default)]
pub struct Preflight {
    /// Bytes per second, from the sources or the last scan.
    rate: Option<u64>,
    /// The time at which the set will be full, as last reported.
    said: Option<Tai>,
    /// True if a forecast was reported.
    told: bool,
}

impl Preflight {
    /// Takes the rate from a sealed scan.
    pub fn learn(&mut self, sealed: &Sealed) {
        let manifest = &sealed.manifest;
        let lasted_ns = manifest.stopped.map_or(0, |stopped| stopped.since(manifest.armed)).max(0);
        if lasted_ns.unsigned_abs() < LONG_ENOUGH.as_nanos() as u64 || manifest.bytes() == 0 {
            return;
        }
        let parity = manifest.redundancy.and_then(|it| it.followed).map_or(0, |it| it.bytes);
        let bytes = manifest.bytes().saturating_add(parity);
        self.rate = Some((u128::from(bytes) * 1_000_000_000 / lasted_ns as u128) as u64);
    }

    /// True if the predicted time is to be reported: it is the first, or earlier than before.
    fn is_news(&mut self, full: Option<Tai>) -> bool {
        let sooner = full.is_some_and(|full| self.said.is_none_or(|said| full < said));
        let news = sooner || !self.told;
        if news || full.is_none() {
            self.said = full;
        }
        self.told = true;
        news
    }
}

impl Session {
    /// Reports all problems that would prevent scans from being recorded at their time.
    pub(super) fn look_ahead(
        &mut self,
        tell: &mut SessionEventHandler<'_>,
    ) -> Result<(), SessionError> {
        let last = self.schedule.scans.last().expect("a schedule has a scan");
        let config = self.config.of_scan(last, None, &self.known)?;
        let mut warnings = Vec::new();
        let rehearsal = preflight(&config, &mut |event: &Event| {
            if let Event::Warning { text } = event {
                warnings.push(text.clone());
            }
        });
        warnings.extend(self.slow_disks(&config));
        warnings.into_iter().for_each(|text| tell(&SessionEvent::warning(text)));
        for problem in rehearsal.problems {
            match problem {
                RecordError::Past { .. } => {}
                problem if problem.is_lasting() => return Err(problem.into()),
                problem => tell(&SessionEvent::warning(format!(
                    "no scan can be armed at present: {}",
                    explained(&problem)
                ))),
            }
        }
        self.judge_names(tell);
        self.outlook.rate = rehearsal.rate;
        self.judge_room(tell);
        Ok(())
    }

    /// Returns a warning about the first scan whose data the disks do not write in time.
    fn slow_disks(&self, plan: &RecordingConfig) -> Option<String> {
        let agenda = &self.watch.agenda;
        agenda.ahead().find_map(|scan| {
            let (start, pause) = (Some(scan.start), agenda.pause_after(scan));
            let limit = Limit { until: Some(scan.end), ..plan.limit };
            let text = slow_disks(&RecordingConfig { start, limit, pause, ..plan.clone() })?;
            Some(format!("scan {}: {text}", scan.name))
        })
    }

    /// Reports the scans that will get other names.
    fn judge_names(&self, tell: &mut SessionEventHandler<'_>) {
        let (earlier, now) = (TakenNames::look(&self.members), Clock::new().now());
        let is_taken = |scan: &&Planned| {
            let (session, scan_name) = (self.done.session.clone(), scan.name.clone());
            scan.start > now && earlier.is_taken(&ScanName { session, scan: scan_name })
        };
        let taken: Vec<&Name> =
            self.watch.agenda.ahead().filter(is_taken).map(|scan| &scan.name).collect();
        if let Some(first) = taken.first() {
            tell(&SessionEvent::warning(format!(
                "the store has {} of these names already: {}; new scans are recorded as {first}-2, and so on",
                count(taken.len()),
                in_a_row(&taken),
            )));
        }
    }

    /// Reports whether the remaining scans fit, and if not, the scan that will fill the disk set.
    pub(super) fn judge_room(&mut self, tell: &mut SessionEventHandler<'_>) {
        // With a retention limit, excess scans are removed meanwhile.
        let Some(rate) =
            self.outlook.rate.filter(|&rate| rate > 0 && self.config.options.keep.is_none())
        else {
            return;
        };
        let (free, now) = (free_bytes(&self.members), Clock::new().now());
        let ahead = || self.watch.agenda.ahead().filter(|scan| scan.end > now);
        let (scans, room) = (ahead().count(), room(ahead(), now, rate, free));
        if scans == 0 || !self.outlook.is_news(room.full.as_ref().map(|(_, at)| *at)) {
            return;
        }
        let (fills, full) = room.full.map(|(scan, at)| (scan.name, at)).unzip();
        tell(&SessionEvent::Room {
            scans,
            rate,
            needed_bytes: room.needed_bytes,
            free_bytes: free,
            fills,
            full,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn that_the_set_will_be_full_is_said_again_only_if_it_comes_sooner() {
        let mut outlook = Preflight::default();
        let said = [None, None, Some(50), Some(60), Some(50), Some(40), None, None, Some(90)]
            .map(|full: Option<i64>| outlook.is_news(full.map(Tai)));
        assert_eq!(said, [true, false, true, false, false, true, false, false, true]);
    }
}
