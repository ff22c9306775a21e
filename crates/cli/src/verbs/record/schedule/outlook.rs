//! What lies ahead of the session, looked at before it begins: members, ports, memory, names, and room for all of it.

use std::time::Duration;

use fullbore_core::name::{Name, ScanName};
use fullbore_core::schedule::Planned;
use fullbore_core::schedule::room::room;
use fullbore_core::time::Tai;
use fullbore_core::units::{ByteRate, ByteSize};
use fullbore_engine::clock::Clock;
use fullbore_engine::recorder::{Event, RecordError, Sealed, free_bytes, rehearse};
use fullbore_engine::store::earlier::Earlier;

use super::news::{Told, in_a_row};
use super::{Runner, plan};
use crate::hint::explained;
use crate::output::count;

/// A scan from which a rate is taken lasts at least this long.
const LONG_ENOUGH: Duration = Duration::from_millis(500);

/// Whether the disk set has room, as far as that is known.
#[derive(Default)]
pub struct Outlook {
    /// Bytes per second, as the sources say it or the last scan has shown.
    rate: Option<u64>,
    /// When it will be full, as was said last.
    said: Option<Tai>,
    /// Whether anything was said of it.
    told: bool,
}

impl Outlook {
    /// Learns the rate from a scan that is sealed.
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

    /// Whether it is to be said that the set will be full then: for the first time, or sooner than before.
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

impl Runner<'_> {
    /// Says now whatever would keep scans from being recorded at their time.
    ///
    /// # Errors
    ///
    /// What lies in the command and does not pass by itself.
    pub(super) fn look_ahead(&mut self, last: &Planned) -> anyhow::Result<()> {
        let plan = plan(self.args, &self.done.session, last, &self.known)?;
        let mut warnings = Vec::new();
        let rehearsal = rehearse(&plan, &mut |event: &Event| {
            if let Event::Warning { text } = event {
                warnings.push(text.clone());
            }
        });
        warnings.iter().for_each(|text| self.say(&format!("warning: {text}")));
        for problem in rehearsal.problems {
            match problem {
                RecordError::Past { .. } => {}
                problem if problem.is_lasting() => return Err(explained(problem)),
                problem => self.say(&format!(
                    "warning: as things stand, no scan could be armed: {}",
                    explained(problem)
                )),
            }
        }
        self.judge_names();
        self.outlook.rate = rehearsal.rate;
        self.judge_room();
        Ok(())
    }

    /// Says which scans to come have to take other names.
    fn judge_names(&self) {
        let (earlier, now) = (Earlier::look(&self.members), Clock::new().now());
        let is_taken = |scan: &&Planned| {
            let (session, scan_name) = (self.done.session.clone(), scan.name.clone());
            scan.start > now && earlier.is_taken(&ScanName { session, scan: scan_name })
        };
        let taken: Vec<&Name> =
            self.watch.agenda.ahead().filter(is_taken).map(|scan| &scan.name).collect();
        if let Some(first) = taken.first() {
            self.say(&format!(
                "warning: the store has {} of these names already: {}; what comes is recorded as {first}-2, and so on",
                count(taken.len(), "scan"),
                in_a_row(&taken),
            ));
        }
    }

    /// Says whether there is room for all that lies ahead, and if not, which scan will fill the disk set.
    pub(super) fn judge_room(&mut self) {
        // What is too much is removed meanwhile.
        let Some(rate) = self.outlook.rate.filter(|&rate| rate > 0 && self.args.keep.is_none())
        else {
            return;
        };
        let (free, now) = (free_bytes(&self.members), Clock::new().now());
        let ahead = || self.watch.agenda.ahead().filter(|scan| scan.end > now);
        let (scans, room) = (ahead().count(), room(ahead(), now, rate, free));
        if scans == 0 || !self.outlook.is_news(room.full.as_ref().map(|(_, at)| *at)) {
            return;
        }
        let needed = room.needed_bytes;
        let fills = room.full.as_ref();
        let told = Told::Room {
            scans,
            rate,
            needed_bytes: needed,
            free_bytes: free,
            fills: fills.map(|(scan, _)| &scan.name),
            full: fills.map(|(_, at)| *at),
        };
        self.tell(&told, || {
            let sum = format!(
                "{} ahead at {} take {}, and the disk set has {} free",
                count(scans, "scan"),
                ByteRate(rate),
                ByteSize(needed),
                ByteSize(free)
            );
            match fills {
                Some((scan, at)) => {
                    format!("warning: {sum}: scan {} fills it, at {at:.1}", scan.name)
                }
                None => sum,
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn that_the_set_will_be_full_is_said_again_only_if_it_comes_sooner() {
        let mut outlook = Outlook::default();
        let said = [None, None, Some(50), Some(60), Some(50), Some(40), None, None, Some(90)]
            .map(|full: Option<i64>| outlook.is_news(full.map(Tai)));
        assert_eq!(said, [true, false, true, false, false, true, false, false, true]);
    }
}
