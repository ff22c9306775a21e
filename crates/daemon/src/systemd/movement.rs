//! Whether capture and writers move, by the reports of the recorders. Pure: the time is passed in.
//!
//! A recorder reports five times a second. Capture stands still if its reports stop, and a writer does if it has a
//! backlog and writes nothing. Only what has moved under this daemon can stand still: a daemon that was restarted
//! because of a dead disk is not restarted again for the same one.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use uuid::Uuid;

use crate::recorder::Recording;
use crate::recorder::life::Phase;

/// What does not move for so long stands still.
pub const STILL: Duration = Duration::from_secs(10);

/// The movement of all recordings.
#[derive(Debug, Default)]
pub struct Movement(BTreeMap<(Uuid, Option<String>), Moved>);

#[derive(Debug)]
struct Moved {
    /// What was reported last.
    mark: u64,
    at: Instant,
    has_moved: bool,
}

impl Movement {
    /// Takes the recordings of now. Returns what stands still, in words.
    pub fn step(&mut self, now: Instant, recordings: &[Recording]) -> Option<String> {
        let mut standing = None;
        let mut present = Vec::new();
        for recording in recordings.iter().filter(|it| it.life.phase == Phase::Recording) {
            let Some(progress) = &recording.life.progress else { continue };
            let capture = (recording.id, None);
            // The bits of the seconds differ with each report.
            if self.stands(now, &capture, progress.seconds.to_bits(), true) {
                standing.get_or_insert(format!("{}: the recorder reports nothing", progress.scan));
            }
            present.push(capture);
            for member in &progress.members {
                let writer = (recording.id, Some(member.path.clone()));
                let works = member.backlog_bytes > 0 && member.failure.is_none();
                if self.stands(now, &writer, member.written_bytes, works) {
                    standing.get_or_insert(format!("{}: nothing is written", member.path));
                }
                present.push(writer);
            }
        }
        self.0.retain(|key, _| present.contains(key));
        standing
    }

    /// Notes a mark. `works`: it should change.
    fn stands(
        &mut self,
        now: Instant,
        key: &(Uuid, Option<String>),
        mark: u64,
        works: bool,
    ) -> bool {
        let Some(moved) = self.0.get_mut(key) else {
            self.0.insert(key.clone(), Moved { mark, at: now, has_moved: false });
            return false;
        };
        if moved.mark != mark {
            *moved = Moved { mark, at: now, has_moved: true };
        } else if !works {
            moved.at = now;
        }
        moved.has_moved && now.saturating_duration_since(moved.at) >= STILL
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recorder::life::{Input, Life};
    use crate::recorder::report::Report;
    use crate::recorder::report::tests::PROGRESS;
    use crate::recorder::request::StartRequest;

    /// A recording after so many seconds, with so much written and waiting.
    fn recording(id: Uuid, seconds: f64, written: u64, backlog: u64) -> Recording {
        let Some(Report::Progress(mut progress)) = Report::of_line(PROGRESS.as_bytes()) else {
            panic!()
        };
        progress.seconds = seconds;
        progress.members[0].written_bytes = written;
        progress.members[0].backlog_bytes = backlog;
        let mut life = Life::default();
        life.step(Input::Said(Report::Progress(progress)));
        Recording {
            id,
            request: StartRequest::default(),
            found: false,
            pid: Some(1),
            life,
            ended: None,
        }
    }

    #[test]
    fn a_recorder_that_stops_reporting_stands_still() {
        let (mut movement, start, id) = (Movement::default(), Instant::now(), Uuid::now_v7());
        let mut step = |at: u64, seconds: f64| {
            movement.step(start + Duration::from_secs(at), &[recording(id, seconds, 0, 0)])
        };
        assert_eq!((step(0, 1.0), step(1, 2.0), step(10, 2.0)), (None, None, None));
        assert!(step(11, 2.0).unwrap().contains("reports nothing"));
        assert_eq!(step(12, 3.0), None);
        assert_eq!(movement.step(start + Duration::from_secs(60), &[]), None);
        assert!(movement.0.is_empty());
    }

    #[test]
    fn a_writer_stands_still_only_with_a_backlog() {
        let (mut movement, start, id) = (Movement::default(), Instant::now(), Uuid::now_v7());
        let mut step = |at: u64, written: u64, backlog: u64| {
            let now = recording(id, at as f64, written, backlog);
            movement.step(start + Duration::from_secs(at), &[now])
        };
        assert_eq!((step(0, 1, 5), step(1, 2, 5)), (None, None));
        assert_eq!((step(20, 2, 0), step(29, 2, 5)), (None, None));
        assert!(step(30, 2, 5).unwrap().contains("nothing is written"));
        assert_eq!(step(31, 3, 5), None);
    }

    #[test]
    fn what_never_moved_under_this_daemon_does_not_stand_still() {
        let (mut movement, start, id) = (Movement::default(), Instant::now(), Uuid::now_v7());
        for at in [0, 60, 600] {
            let still = [recording(id, 1.0, 7, 5)];
            assert_eq!(movement.step(start + Duration::from_secs(at), &still), None);
        }
    }
}
