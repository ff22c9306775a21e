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
    /// Its start: that of its first frame; the planned one if there is none yet, or if the frames have other times.
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

/// The scans between two times. `armed` says when a scan of the store was armed, by the clock of this host.
pub fn scans(
    agendas: &[Agenda],
    stored: &[Entry],
    armed: impl Fn(&str) -> Option<Tai>,
    (from, until): (Tai, Tai),
    now: Tai,
) -> Vec<TimelineScan> {
    let mut found: Vec<TimelineScan> = stored.iter().filter_map(|it| of_entry(it, now)).collect();
    let known: BTreeMap<String, usize> =
        found.iter().enumerate().map(|(place, it)| (it.scan.clone(), place)).collect();
    for agenda in agendas {
        let early = i64::try_from(agenda.lead.saturating_add(EARLY).as_nanos()).unwrap_or(i64::MAX);
        for mut scan in planned(agenda, now).filter(|it| is_in(it, from, until)) {
            let armed_for_it = scan.start.plus_ns(-early)..scan.end;
            let is_it = |name: &str, place: usize| {
                overlap(&found[place], &scan)
                    || armed(name).is_some_and(|at| armed_for_it.contains(&at))
            };
            match recorded(&scan.scan, &known, is_it) {
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
    planned: &str,
    known: &BTreeMap<String, usize>,
    is_it: impl Fn(&str, usize) -> bool,
) -> Option<usize> {
    let is_numbered = |name: &str| {
        let rest = name.strip_prefix(planned).and_then(|it| it.strip_prefix('-'));
        rest.is_some_and(|it| !it.is_empty() && it.bytes().all(|byte| byte.is_ascii_digit()))
    };
    let of_it = known.range(planned.to_owned()..).take_while(|(name, _)| name.starts_with(planned));
    let mut of_it = of_it.filter(|(name, _)| *name == planned || is_numbered(name));
    of_it.find(|(name, place)| is_it(name, **place)).map(|(_, place)| *place)
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
        let found = scans(&[agenda], &stored, |_| None, (at(-10), at(600)), at(130));
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
        let stored = [
            entry("r1_no1", ScanState::Sealed, at(-7200)),
            entry("r1_no1-2", ScanState::Sealed, at(-3600)),
        ];
        let armed = |name: &str| Some(at(if name == "r1_no1" { -7205 } else { -5 }));
        let agenda = [agenda];
        let found = scans(&agenda, &stored, armed, (at(-60), at(50)), at(100));
        assert_eq!(told(&found), [("r1_no1-2", Moment::Stored)]);
        assert_eq!((found[0].start, found[0].end), (at(0), at(40)));
        // A scan that ended early, before the stretch of time that is asked for.
        let sealed = entry("r1_no1", ScanState::Sealed, at(1));
        let early = [Entry { duration_ns: Some(SECOND), ..sealed }];
        let found = scans(&agenda, &early, |_| None, (at(20), at(50)), at(100));
        assert_eq!(told(&found), []);
    }

    #[test]
    fn scans_ahead_and_of_a_cancelled_schedule_are_told_apart() {
        let (agenda, first) = agenda(true);
        let at = |seconds: i64| first.plus_ns(seconds * SECOND);
        let of = |agenda: &Agenda, now| {
            scans(std::slice::from_ref(agenda), &[], |_| None, (at(0), at(100)), now)
        };
        let found = of(&agenda, at(50));
        assert_eq!(told(&found), [("r1_no1", Moment::Missed), ("r1_no2", Moment::Cancelled)]);
        let wanted = Agenda { cancelled: false, ..agenda };
        let found = of(&wanted, at(-50));
        assert_eq!(told(&found), [("r1_no1", Moment::Ahead), ("r1_no2", Moment::Ahead)]);
    }
}
