//! A stretch of time with its scans: those of the store with their verdicts, the running one, and those of schedules.

use std::collections::BTreeMap;
use std::time::Duration;

use fullbore_store::catalogue::{Entry, ScanState};
use fullbore_time::Tai;
use serde::Serialize;
use utoipa::ToSchema;

use super::Agenda;
use super::outlook::Outlook;

/// The most scans of a timeline.
pub const MOST: usize = 5000;

/// The state of a scan in the timeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
#[schema(as = ScanMoment)]
pub enum Moment {
    /// It is in the store.
    Stored,
    /// It is being recorded.
    Recording,
    /// A schedule will record it.
    Ahead,
    /// A schedule had it, and the store has it not.
    Missed,
    /// Its schedule was cancelled before it began.
    Cancelled,
}

/// A scan of the timeline.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct TimelineScan {
    /// Its name.
    pub scan: String,
    /// Its schedule, if it is of one that is not forgotten.
    pub schedule: Option<String>,
    /// Its start: that of its first frame, or planned. The planned one, too, if its frames have other times.
    #[schema(value_type = String)]
    pub start: Tai,
    /// Its end. Of a scan that is being recorded without a planned end: now.
    #[schema(value_type = String)]
    pub end: Tai,
    /// What is observed.
    pub target: Option<String>,
    /// Its state.
    pub moment: Moment,
    /// Whether it is complete. Null if its frames cannot show a loss, or it is not over.
    pub complete: Option<bool>,
    /// The first line of its account.
    pub headline: Option<String>,
    /// Its verdict, as `fullbore ls --json` prints it.
    pub verdict: Option<String>,
    /// Why it is broken.
    pub problem: Option<String>,
}

/// A stretch of time.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct Timeline {
    /// Its beginning.
    #[schema(value_type = String)]
    pub from: Tai,
    /// Its end.
    #[schema(value_type = String)]
    pub until: Tai,
    /// The scans, by their starts.
    pub scans: Vec<TimelineScan>,
    /// True if there are more than 5000.
    pub cut: bool,
    /// What the schedules need.
    pub outlooks: Vec<Outlook>,
}

/// A scan was armed so much before the time at which its schedule would do it, at most: a recorder is started ahead.
const EARLY: Duration = Duration::from_secs(60);

/// The scans between two times.
pub fn scans(
    agendas: &[Agenda],
    stored: &[Entry],
    from: Tai,
    until: Tai,
    now: Tai,
) -> Vec<TimelineScan> {
    let mut found: Vec<TimelineScan> = Vec::new();
    let mut known: BTreeMap<&str, Known> = BTreeMap::new();
    for (entry, scan) in stored.iter().filter_map(|it| Some((it, of_entry(it, now)?))) {
        known.insert(&entry.name, Known { place: found.len(), armed: entry.armed });
        found.push(scan);
    }
    for agenda in agendas {
        for mut scan in planned(agenda, now).filter(|it| is_in(it, from, until)) {
            match recorded(&scan, agenda.lead, &known, &found) {
                Some(place) => be_of_schedule(&mut found[place], scan),
                None => {
                    if scan.moment == Moment::Recording {
                        // Its directory is made with its first frame.
                        scan.moment = Moment::Ahead;
                    }
                    found.push(scan);
                }
            }
        }
    }
    found.retain(|it| is_in(it, from, until));
    found.sort_by(|one, other| (one.start, &one.scan).cmp(&(other.start, &other.scan)));
    found
}

/// A scan of the store.
struct Known {
    place: usize,
    armed: Option<Tai>,
}

/// Makes a scan of the store that of a schedule. One whose frames have other times is shown when it was planned.
fn be_of_schedule(one: &mut TimelineScan, planned: TimelineScan) {
    if !overlap(one, &planned) {
        (one.start, one.end) = (planned.start, planned.end);
    } else if one.moment == Moment::Recording {
        one.end = planned.end.max(one.start);
    }
    (one.schedule, one.target) = (planned.schedule, planned.target);
}

fn overlap(one: &TimelineScan, other: &TimelineScan) -> bool {
    one.start < other.end && one.end > other.start
}

fn is_in(scan: &TimelineScan, from: Tai, until: Tai) -> bool {
    scan.start < until && scan.end > from
}

fn of_entry(entry: &Entry, now: Tai) -> Option<TimelineScan> {
    let start = entry.start?;
    let runs = entry.state == ScanState::Recording;
    let lasts = entry.duration_ns.unwrap_or(0).max(1);
    let verdict = entry.verdict.and_then(|it| serde_json::to_value(it).ok());
    Some(TimelineScan {
        scan: entry.name.clone(),
        schedule: None,
        start,
        end: if runs { now.max(start.plus_ns(1)) } else { start.plus_ns(lasts) },
        target: None,
        moment: if runs { Moment::Recording } else { Moment::Stored },
        complete: entry.completeness.as_ref().and_then(|it| it.complete),
        headline: entry.completeness.as_ref().map(|it| it.headline.clone()),
        verdict: verdict.and_then(|it| it.as_str().map(str::to_owned)),
        problem: entry.problem.clone(),
    })
}

fn planned(agenda: &Agenda, now: Tai) -> impl Iterator<Item = TimelineScan> {
    agenda.scans.scans.iter().map(move |scan| TimelineScan {
        scan: format!("{}_{}", agenda.session, scan.name),
        schedule: Some(agenda.name.clone()),
        start: scan.start,
        end: scan.end,
        target: scan.target.clone(),
        moment: match (agenda.cancelled, scan.end <= now, scan.start <= now) {
            (true, false, _) => Moment::Cancelled,
            (_, true, _) => Moment::Missed,
            (false, false, true) => Moment::Recording,
            (false, false, false) => Moment::Ahead,
        },
        complete: None,
        headline: None,
        verdict: None,
        problem: None,
    })
}

/// The scan of the store that a planned one became: of its name, or of the name that it got because that was taken; and
/// with frames of its time, or armed for it. The times of frames are those of the sender, whose clock may be another.
fn recorded(
    planned: &TimelineScan,
    lead: Duration,
    known: &BTreeMap<&str, Known>,
    found: &[TimelineScan],
) -> Option<usize> {
    let early = i64::try_from(lead.saturating_add(EARLY).as_nanos()).unwrap_or(i64::MAX);
    let armed_for_it = planned.start.plus_ns(-early)..planned.end;
    let is_it = |it: &&Known| {
        overlap(&found[it.place], planned) || it.armed.is_some_and(|at| armed_for_it.contains(&at))
    };
    let is_numbered = |name: &str| {
        let rest = name.strip_prefix(&planned.scan).and_then(|it| it.strip_prefix('-'));
        rest.is_some_and(|it| !it.is_empty() && it.bytes().all(|byte| byte.is_ascii_digit()))
    };
    let named = known.get(&*planned.scan).filter(is_it);
    let with_number = || {
        let later = known.range(&*planned.scan..);
        let of_it = later.take_while(|(name, _)| name.starts_with(&planned.scan));
        let mut of_it = of_it.filter(|(name, _)| is_numbered(name)).map(|(_, it)| it);
        of_it.find(is_it)
    };
    named.or_else(with_number).map(|it| it.place)
}

#[cfg(test)]
mod tests {
    use fullbore_core::schedule::Schedule;

    use super::*;

    const SECOND: i64 = 1_000_000_000;

    fn agenda(cancelled: bool) -> (Agenda, Tai) {
        let csv = "scan,start,duration,target\nno1,2030-01-01T00:00:00Z,40s,3C84\n\
                   no2,2030-01-01T00:01:00Z,40s,\nno3,2030-01-01T00:02:00Z,40s,\n";
        let scans = Schedule::read(csv, None).unwrap();
        let first = scans.scans[0].start;
        let (name, session, endpoints) = ("vgos".into(), "r1".into(), vec![]);
        (Agenda { name, session, scans, endpoints, lead: Duration::ZERO, cancelled }, first)
    }

    fn entry(name: &str, state: ScanState, start: Tai) -> Entry {
        Entry {
            name: name.into(),
            state,
            start: Some(start),
            armed: Some(start.plus_ns(-SECOND)),
            duration_ns: Some(39 * SECOND),
            bytes: 1,
            streams: 1,
            verdict: None,
            completeness: None,
            members: vec![],
            absent: vec![],
            wanting: vec![],
            leftover: vec![],
            protected: false,
            incomplete_from: None,
            copies: 0,
            problem: None,
            is_ours: true,
        }
    }

    fn told(found: &[TimelineScan]) -> Vec<(&str, Moment)> {
        found.iter().map(|it| (it.scan.as_str(), it.moment)).collect()
    }

    #[test]
    fn planned_scans_are_those_of_the_store_by_name_and_time() {
        let (agenda, first) = agenda(false);
        let at = |seconds: i64| first.plus_ns(seconds * SECOND);
        let stored = [
            entry("r1_no1-2", ScanState::Sealed, at(1)),
            entry("r1_no1", ScanState::Sealed, at(-4000)),
            entry("r1_no3", ScanState::Recording, at(120)),
        ];
        let found = scans(&[agenda], &stored, at(-10), at(600), at(130));
        let expected = [
            ("r1_no1-2", Moment::Stored),
            ("r1_no2", Moment::Missed),
            ("r1_no3", Moment::Recording),
        ];
        assert_eq!(told(&found), expected);
        assert_eq!((found[0].target.as_deref(), found[2].end), (Some("3C84"), at(160)));
        assert!(found.iter().all(|it| it.schedule.as_deref() == Some("vgos")));
    }

    #[test]
    fn a_scan_that_was_recorded_is_stored_whatever_the_times_of_its_frames_are() {
        let (agenda, first) = agenda(false);
        let at = |seconds: i64| first.plus_ns(seconds * SECOND);
        // A sender whose clock is an hour behind, and a scan of the same name that was recorded before.
        let armed = |name, seconds, armed| Entry {
            armed: Some(at(armed)),
            ..entry(name, ScanState::Sealed, at(seconds))
        };
        let stored = [armed("r1_no1", -7200, -7205), armed("r1_no1-2", -3600, -5)];
        let found = scans(std::slice::from_ref(&agenda), &stored, at(-60), at(50), at(100));
        assert_eq!(told(&found), [("r1_no1-2", Moment::Stored)]);
        assert_eq!((found[0].start, found[0].end), (at(0), at(40)));
        // A scan that ended early, before the stretch of time that is asked for.
        let early = Entry { duration_ns: Some(SECOND), ..entry("r1_no1", ScanState::Sealed, at(1)) };
        let found = scans(&[agenda], &[early], at(20), at(50), at(100));
        assert_eq!(told(&found), []);
    }

    #[test]
    fn scans_ahead_and_of_a_cancelled_schedule_are_told_apart() {
        let (agenda, first) = agenda(true);
        let at = |seconds: i64| first.plus_ns(seconds * SECOND);
        let found = scans(std::slice::from_ref(&agenda), &[], at(0), at(100), at(50));
        assert_eq!(told(&found), [("r1_no1", Moment::Missed), ("r1_no2", Moment::Cancelled)]);
        let wanted = Agenda { cancelled: false, ..agenda };
        let found = scans(&[wanted], &[], at(0), at(100), at(-50));
        assert_eq!(told(&found), [("r1_no1", Moment::Ahead), ("r1_no2", Moment::Ahead)]);
    }
}
