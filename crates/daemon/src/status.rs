//! The state of the station in one document, and the thread that keeps it current.
//!
//! Free space is asked for on a thread for each member, because the question may wait for a disk that does not respond.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use fullbore_linux::clock::Clock;
use fullbore_time::Tai;
use serde::Serialize;
use tokio::sync::watch;
use utoipa::ToSchema;

use crate::alerts::Alerts;
use crate::jobs::{Job, Jobs, in_the_way};
use crate::recorder::{Recorders, Recording};
use crate::schedules::{NextScan, Scheduled, Schedules, State};
use crate::transfers::{TransferState, Transfers};

/// Time between two looks. The recorder reports as often.
const LOOK: Duration = Duration::from_millis(200);

/// Time between two questions for free space.
const ASK: Duration = Duration::from_secs(1);

/// A member that did not answer for so long is shown as such.
const SILENT: Duration = Duration::from_secs(5);

/// The state of the station.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct Status {
    /// The version of the program.
    pub version: &'static str,
    /// The name of the host.
    pub host: String,
    /// The time of this document.
    #[schema(value_type = String)]
    pub time: Tai,
    /// The members of the store.
    pub members: Vec<MemberSpace>,
    /// The recordings that run, and the last ones that ended: the newest first.
    pub recordings: Vec<Recording>,
    /// The number of alerts that last.
    pub open_alerts: usize,
    /// The jobs: the newest first, without their results.
    pub jobs: Vec<Job>,
    /// True if the daemon is a demonstration, whose instrument is simulated.
    pub demo: bool,
    /// The schedules.
    pub schedules: Vec<ScheduleState>,
    /// The next scans of all schedules, also of one that is being recorded.
    pub next_scans: Vec<NextScan>,
    /// The queue of transfers, and transfers that began at other sites.
    pub transfers: TransferState,
}

/// A schedule in the state of the station.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct ScheduleState {
    /// Its name.
    pub name: String,
    /// Its state.
    pub state: State,
    /// The number of its scans that are not over.
    pub ahead: usize,
    /// Why its recorder does not run.
    pub problem: Option<String>,
}

impl ScheduleState {
    fn of(scheduled: Scheduled) -> Self {
        let Scheduled { name, state, ahead, problem, .. } = scheduled;
        Self { name, state, ahead, problem }
    }
}

/// The space of a member.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct MemberSpace {
    /// Its directory.
    pub path: String,
    /// Bytes free for this user. Null if the member did not answer.
    pub free_bytes: Option<u64>,
    /// Bytes of its file system.
    pub total_bytes: Option<u64>,
    /// Why it is not known, or that the member does not answer.
    pub problem: Option<String>,
}

/// What is known of a member, and when it said so.
pub(crate) type Answer = Arc<Mutex<(Instant, MemberSpace)>>;

/// Ended recordings in the document. The others are listed by `/api/v1/recordings`.
const ENDED_SHOWN: usize = 5;

/// Keeps the document current until nobody holds a receiver. Returns the receiver.
pub fn keep(
    members: &[PathBuf],
    recorders: Recorders,
    jobs: Jobs,
    schedules: Schedules,
    alerts: Alerts,
    transfers: Transfers,
    demo: bool,
) -> std::io::Result<watch::Receiver<Arc<str>>> {
    let answers = members.iter().map(|path| watched(path)).collect::<Result<Vec<_>, _>>()?;
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let look = move || {
        let members = answers.iter().map(space_of).collect();
        let (recordings, next_scans, time) =
            (recorders.all(), schedules.next(), Clock::new().now());
        if let Some(why) = in_the_way(&recordings, &next_scans, time) {
            jobs.yield_to(&why);
        }
        jobs.end_ignored();
        let status = Status {
            version: env!("CARGO_PKG_VERSION"),
            host: host.clone(),
            time,
            members,
            recordings: shown(recordings),
            jobs: jobs.states(),
            schedules: schedules.all().into_iter().map(ScheduleState::of).collect(),
            next_scans,
            transfers: transfers.current(),
            open_alerts: alerts.history().open(),
            demo,
        };
        alerts.look(&status, Instant::now());
        Arc::<str>::from(serde_json::to_string(&status).unwrap_or_default())
    };
    let (news, receiver) = watch::channel(look());
    thread::Builder::new().name("status".into()).spawn(move || {
        while news.send(look()).is_ok() {
            thread::sleep(LOOK);
        }
    })?;
    Ok(receiver)
}

/// Those that run, and the last ones that ended. One that ran for long is among these too, although others began later.
fn shown(mut all: Vec<Recording>) -> Vec<Recording> {
    let mut ends: Vec<Instant> = all.iter().filter_map(|it| it.ended).collect();
    ends.sort();
    let first = ends.iter().rev().take(ENDED_SHOWN).next_back().copied();
    all.retain(|it| it.ended.is_none_or(|at| first.is_some_and(|first| at >= first)));
    all
}

/// What is known of the space of a member now.
pub(crate) fn space_of(answer: &Answer) -> MemberSpace {
    let (at, space) = answer.lock().unwrap_or_else(PoisonError::into_inner).clone();
    if at.elapsed() < SILENT {
        return space;
    }
    let problem = format!("it has not answered for {} s", at.elapsed().as_secs());
    MemberSpace { free_bytes: None, problem: Some(problem), ..space }
}

/// Asks a member for its space again and again, on a thread, as long as the answer is held.
pub(crate) fn watched(path: &Path) -> std::io::Result<Answer> {
    let unknown = MemberSpace {
        path: path.display().to_string(),
        free_bytes: None,
        total_bytes: None,
        problem: None,
    };
    let answer = Arc::new(Mutex::new((Instant::now(), unknown)));
    let (weak, path) = (Arc::downgrade(&answer), path.to_owned());
    thread::Builder::new().name("space".into()).spawn(move || {
        loop {
            let space = asked(&path);
            let Some(answer) = weak.upgrade() else { return };
            *answer.lock().unwrap_or_else(PoisonError::into_inner) = (Instant::now(), space);
            drop(answer);
            thread::sleep(ASK);
        }
    })?;
    Ok(answer)
}

fn asked(member: &Path) -> MemberSpace {
    let path = member.display().to_string();
    match rustix::fs::statvfs(member) {
        Ok(space) => {
            let bytes = |blocks: u64| Some(blocks.saturating_mul(space.f_frsize));
            let (free_bytes, total_bytes) = (bytes(space.f_bavail), bytes(space.f_blocks));
            MemberSpace { path, free_bytes, total_bytes, problem: None }
        }
        Err(error) => {
            let problem = Some(std::io::Error::from(error).to_string());
            MemberSpace { path, free_bytes: None, total_bytes: None, problem }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_tells_its_space_or_why_not() {
        let place = tempfile::tempdir().unwrap();
        let space = asked(place.path());
        assert!(space.free_bytes.unwrap() <= space.total_bytes.unwrap() && space.problem.is_none());
        let gone = asked(&place.path().join("gone"));
        assert!(gone.problem.unwrap().contains("No such file") && gone.free_bytes.is_none());
    }

    #[test]
    fn a_long_recording_that_ends_last_is_shown_among_the_ended() {
        let now = Instant::now();
        let recording = |number: u64, ended: Option<u64>| Recording {
            id: uuid::Uuid::from_u128(number.into()),
            request: crate::recorder::request::StartRequest::default(),
            found: false,
            pid: None,
            life: crate::recorder::life::Life::default(),
            ended: ended.map(|after| now + Duration::from_secs(after)),
        };
        // The newest first: nine short ones that have ended, one that runs, and a long one.
        let short = (2..11).rev().map(|number| recording(number, Some(number)));
        let mut all = vec![recording(11, None)];
        all.extend(short);
        all.push(recording(1, Some(60)));
        let numbers: Vec<u128> = shown(all).iter().map(|it| it.id.as_u128()).collect();
        assert_eq!(numbers, [11, 10, 9, 8, 7, 1]);
    }

    #[test]
    fn a_member_that_does_not_answer_is_not_shown_as_free() {
        let Some(long_ago) = Instant::now().checked_sub(SILENT) else { return };
        let space = MemberSpace {
            path: "/m0".into(),
            free_bytes: Some(5),
            total_bytes: Some(9),
            problem: None,
        };
        let shown = space_of(&Arc::new(Mutex::new((long_ago, space.clone()))));
        assert!(shown.free_bytes.is_none() && shown.problem.is_some());
        assert_eq!(space_of(&Arc::new(Mutex::new((Instant::now(), space.clone())))), space);
    }
}
