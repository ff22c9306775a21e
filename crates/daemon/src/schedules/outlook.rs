//! Whether the scans ahead fit: space on the disk set, pauses, and names that are taken.
//!
//! The sum is that of a recorder ([`room`]), which tells it before the first scan and after each one. Here it is known
//! before a recorder is started, and for all schedules at once.

use std::collections::BTreeSet;
use std::time::Duration;

use fullbore_core::schedule::Planned;
use fullbore_core::schedule::room::room;
use fullbore_planning::plan::demand::{self, What};
use fullbore_store::catalogue::Entry;
use fullbore_time::Tai;
use serde::Serialize;
use utoipa::ToSchema;

use super::Agenda;

/// The shortest scan from which a rate is taken, as a recorder does.
const LONG_ENOUGH_NS: i64 = 500_000_000;

/// Findings of a kind that are listed.
const LISTED: usize = 20;

/// What a schedule needs, and whether it is there.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct Outlook {
    /// The schedule.
    pub schedule: String,
    /// Its session.
    pub session: String,
    /// The number of scans that are not over.
    pub ahead: usize,
    /// The bytes per second that they are expected to have. Null if nothing tells it.
    pub rate: Option<u64>,
    /// What tells it.
    pub rate_by: Option<String>,
    /// The bytes that they need.
    pub needed_bytes: Option<u64>,
    /// Bytes free on the store, less those that scans of other schedules need before.
    pub free_bytes: u64,
    /// The scan that fills the store.
    pub fills: Option<String>,
    /// When it does.
    #[schema(value_type = Option<String>)]
    pub full: Option<Tai>,
    /// What else does not fit, in sentences.
    pub problems: Vec<String>,
    /// What the reader of the schedule changed, in sentences.
    pub notes: Vec<String>,
}

/// Looks ahead. `scans` are those of the store, `free_bytes` is its free space.
pub fn outlook(agenda: &Agenda, scans: &[Entry], free_bytes: u64, now: Tai) -> Outlook {
    let ahead = || agenda.scans.scans.iter().filter(|scan| scan.end > now);
    let (rate, rate_by) = rate_of(agenda, scans).unzip();
    let space = rate.map(|rate| room(ahead(), now, rate, free_bytes));
    let (fills, full) = space.as_ref().and_then(|it| it.full.clone()).unzip();
    let mut problems = Vec::new();
    if let (Some(scan), Some(at)) = (&fills, full) {
        problems.push(format!("the store is full at {at:.0}, in scan {}", scan.name));
    }
    problems.extend(short_pauses(agenda, now));
    problems.extend(taken(agenda, scans, now));
    Outlook {
        schedule: agenda.name.clone(),
        session: agenda.session.clone(),
        ahead: ahead().count(),
        rate,
        rate_by,
        needed_bytes: space.map(|it| it.needed_bytes),
        free_bytes,
        fills: fills.map(|it| it.name.to_string()),
        full,
        problems,
        notes: agenda.scans.notes.clone(),
    }
}

/// Looks ahead for several schedules: what the scans of one need is not there for those of the next one.
pub fn outlooks(agendas: &[Agenda], scans: &[Entry], free_bytes: u64, now: Tai) -> Vec<Outlook> {
    let mut free = free_bytes;
    let wanted = agendas.iter().filter(|it| !it.cancelled);
    wanted
        .map(|agenda| {
            let told = outlook(agenda, scans, free, now);
            free = free.saturating_sub(told.needed_bytes.unwrap_or(0));
            told
        })
        .collect()
}

/// The expected rate: that of the newest scan of the session, else what the sources state.
fn rate_of(agenda: &Agenda, scans: &[Entry]) -> Option<(u64, String)> {
    let prefix = format!("{}_", agenda.session);
    let long = scans.iter().filter(|it| it.name.starts_with(&prefix) && it.bytes > 0);
    let long = long.filter_map(|it| Some((it, it.duration_ns.filter(|ns| *ns >= LONG_ENOUGH_NS)?)));
    if let Some((scan, ns)) = long.max_by_key(|(scan, _)| scan.start) {
        let rate = u128::from(scan.bytes) * 1_000_000_000 / ns.unsigned_abs() as u128;
        return Some((u64::try_from(rate).unwrap_or(u64::MAX), format!("the scan {}", scan.name)));
    }
    let stated = |source: &String| match demand::stream(source, &[]).ok()? {
        demand::TypedStream { count, what: What::Endpoint { rate, .. }, .. } => {
            Some(rate.0.saturating_mul(u64::from(count)))
        }
        _ => None,
    };
    let rates: Option<Vec<u64>> = agenda.endpoints.iter().map(stated).collect();
    let rate = rates?.into_iter().fold(0_u64, u64::saturating_add);
    (rate > 0).then(|| (rate, "the sources".to_owned()))
}

fn short_pauses(agenda: &Agenda, now: Tai) -> Vec<String> {
    let short = agenda.scans.short_pauses(agenda.lead).filter(|(_, next)| next.end > now);
    let told = |(one, next): (&Planned, &Planned)| {
        let pause = next.start.since(one.end).max(0) as f64 / 1e9;
        let lead = agenda.lead.as_secs_f64();
        format!(
            "{} begins {pause} s after {}, and is armed {lead} s before its start",
            next.name, one.name
        )
    };
    listed(short.map(told).collect())
}

/// Scans whose names the store has already.
fn taken(agenda: &Agenda, scans: &[Entry], now: Tai) -> Vec<String> {
    let names: BTreeSet<&str> = scans.iter().map(|it| it.name.as_str()).collect();
    let ahead = agenda.scans.scans.iter().filter(|scan| scan.start > now);
    let is_taken =
        |it: &&Planned| names.contains(format!("{}_{}", agenda.session, it.name).as_str());
    let told = |it: &Planned| {
        format!(
            "the store has a scan {}_{}: the new one gets another name",
            agenda.session, it.name
        )
    };
    listed(ahead.filter(is_taken).map(told).collect())
}

fn listed(mut all: Vec<String>) -> Vec<String> {
    let more = all.len().saturating_sub(LISTED);
    all.truncate(LISTED);
    if more > 0 {
        all.push(format!("and {more} more of this kind"));
    }
    all
}

/// The time before its start at which a scan is armed, as typed; without it, that of `record --lead`.
pub(super) fn lead_of(text: Option<&str>) -> Duration {
    text.and_then(|it| humantime::parse_duration(it).ok()).unwrap_or(Duration::from_secs(5))
}

#[cfg(test)]
mod tests {
    use fullbore_core::schedule::Schedule;
    use fullbore_store::catalogue::ScanState;

    use super::*;

    const CSV: &str =
        "scan,start,duration\nno1,2030-01-01T00:00:00Z,40s\nno2,2030-01-01T00:00:43Z,40s\n";

    fn agenda(endpoints: &[&str]) -> Agenda {
        Agenda {
            name: "vgos".into(),
            session: "r1".into(),
            scans: Schedule::read(CSV, None).unwrap(),
            endpoints: endpoints.iter().map(|it| (*it).to_owned()).collect(),
            lead: Duration::from_secs(5),
            cancelled: false,
        }
    }

    fn entry(name: &str, bytes: u64, seconds: i64) -> Entry {
        Entry {
            name: name.into(),
            state: ScanState::Sealed,
            start: Some(Tai(0)),
            duration_ns: Some(seconds * 1_000_000_000),
            bytes,
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

    #[test]
    fn the_rate_is_that_of_the_session_and_else_stated() {
        let stated = ["udp://0.0.0.0:1-2?format=vdif&frame=8032&fps=1000"];
        let scans = [entry("r1_no0", 5000, 5), entry("r2_x", 9_000_000, 1)];
        let told = outlook(&agenda(&stated), &scans, 1 << 40, Tai(0));
        assert_eq!((told.rate, told.rate_by.as_deref()), (Some(1000), Some("the scan r1_no0")));
        assert_eq!((told.needed_bytes, told.fills, told.ahead), (Some(80_000), None, 2));
        let told = outlook(&agenda(&stated), &scans[1..], 1 << 40, Tai(0));
        assert_eq!(
            (told.rate, told.rate_by.as_deref()),
            (Some(2 * 8_032_000), Some("the sources"))
        );
        let told = outlook(&agenda(&["udp://0.0.0.0:1?format=vdif"]), &[], 0, Tai(0));
        assert_eq!((told.rate, told.needed_bytes, told.full), (None, None, None));
    }

    #[test]
    fn what_does_not_fit_is_told() {
        let scans = [entry("r1_no2", 1000, 1)];
        let told = outlook(&agenda(&[]), &scans, 50_000, Tai(0));
        assert_eq!(told.fills.as_deref(), Some("no2"));
        let [full, pause, name] = told.problems.as_slice() else { panic!("{:?}", told.problems) };
        assert!(full.contains("is full at") && full.contains("in scan no2"), "{full}");
        assert!(
            pause.contains("no2 begins 3 s after no1") && pause.contains("5 s before"),
            "{pause}"
        );
        assert!(name.contains("has a scan r1_no2"), "{name}");
        let both = outlooks(&[agenda(&[]), agenda(&[])], &scans, 100_000, Tai(0));
        assert_eq!((both[0].free_bytes, both[1].free_bytes), (100_000, 20_000));
        assert!(both[0].fills.is_none() && both[1].fills.as_deref() == Some("no1"));
    }

    #[test]
    fn long_lists_are_cut() {
        let many = listed((0..30).map(|it| it.to_string()).collect());
        assert_eq!(
            (many.len(), many.last().unwrap().as_str()),
            (LISTED + 1, "and 10 more of this kind")
        );
    }
}
