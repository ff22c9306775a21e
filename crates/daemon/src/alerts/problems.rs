//! What is wrong at a station, by its state.

use std::time::Duration;

use fullbore_core::completeness::counted;
use fullbore_transfer::queue::job::JobState;
use serde::Serialize;

use super::Kind;
use crate::recorder::Recording;
use crate::status::Status;
use crate::transfers::TransferState;

/// A disk set that is full before this time is a problem.
pub const SOON: Duration = Duration::from_secs(600);

/// The longest text of a problem, in characters.
const LONGEST_TEXT: usize = 1000;

/// Something that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// Its kind.
    pub kind: Kind,
    /// What it concerns: a stream, a member, a recording, a schedule. It stays the same while the problem lasts.
    pub subject: String,
    /// What is wrong.
    pub text: String,
}

/// The problems of a station.
pub fn of(status: &Status) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut add = |kind, subject: &str, text: String| {
        let text = text.chars().take(LONGEST_TEXT).collect();
        problems.push(Problem { kind, subject: subject.to_owned(), text });
    };
    for member in &status.members {
        if let Some(why) = &member.problem {
            add(Kind::Member, &member.path, format!("{}: {why}", member.path));
        }
    }
    for recording in &status.recordings {
        if !recording.life.is_active() {
            if let Some(complaint) = &recording.life.complaint {
                let name = name_of(recording);
                add(
                    Kind::Recorder,
                    &recording.id.to_string(),
                    format!("{name}: {}", complaint.error),
                );
            }
            continue;
        }
        let Some(progress) = &recording.life.progress else { continue };
        for stream in progress.streams.iter().filter(|it| it.lost() > 0) {
            let subject = format!("{}/{}", progress.scan, stream.name);
            let text = format!("{subject}: {} lost", counted(stream.lost(), "frame"));
            add(Kind::Loss, &subject, text);
        }
        for member in &progress.members {
            if let Some(why) = &member.failure {
                add(Kind::Member, &member.path, format!("{}: {why}", member.path));
            }
        }
        let ends_before = |full: f64| progress.seconds_left.is_some_and(|left| left <= full);
        if let Some(full) = progress.seconds_until_full
            && full < SOON.as_secs_f64()
            && !ends_before(full)
        {
            let text = format!("{}: the disk set is full in {full:.0} s", progress.scan);
            add(Kind::Space, &recording.id.to_string(), text);
        }
    }
    for schedule in &status.schedules {
        if let Some(why) = &schedule.problem {
            add(Kind::Schedule, &schedule.name, format!("schedule {}: {why}", schedule.name));
        }
    }
    of_transfers(&status.transfers, &mut add);
    problems
}

fn of_transfers(transfers: &TransferState, add: &mut impl FnMut(Kind, &str, String)) {
    for row in transfers.queue.iter().filter(|row| row.state == JobState::Failed) {
        let why = row.last_error.as_deref().unwrap_or("it failed");
        let text = format!("transfer {}, {} to {}: {why}", row.id, row.scan, row.to);
        add(Kind::Transfer, &format!("transfer {}", row.id), text);
    }
    for why in &transfers.problems {
        add(Kind::Transfer, why, format!("the queue of transfers: {why}"));
    }
    if let Some(why) = transfers.receive.as_ref().and_then(|it| it.problem.as_ref()) {
        add(Kind::Transfer, "listener", format!("the listener for transfers has ended: {why}"));
    }
}

fn name_of(recording: &Recording) -> String {
    let request = &recording.request;
    match (&recording.life.scan, &request.schedule) {
        (Some(scan), _) => scan.to_string(),
        (None, Some(schedule)) => format!("schedule {schedule}"),
        (None, None) => format!("{}_{}", request.session, request.scan),
    }
}
