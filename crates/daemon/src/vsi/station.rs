//! The station that a dialect of VSI-S commands: everything it tells is in memory.

use std::path::PathBuf;
use std::sync::Arc;

use fullbore_linux::clock::Clock;
use fullbore_time::Tai;
use fullbore_vsi::station::{
    Activity, CopyJob, CopyState, Facts, Identity, Plan, Problem, Space, Station, StoredScan,
};

use super::copies::{Copies, NO_DIRECTORY};
use super::runs::Runs;
use super::scans::Index;
use crate::status::{Answer, space_of, watched};

/// The station.
#[derive(Debug)]
pub(super) struct DaemonStation {
    identity: Identity,
    runs: Runs,
    index: Index,
    copies: Copies,
    answers: Vec<Answer>,
    /// The scans as they were when the present line came.
    scans: Arc<Vec<StoredScan>>,
}

impl DaemonStation {
    pub(super) fn new(
        members: &[PathBuf],
        files: Option<PathBuf>,
        runs: Runs,
        index: Index,
    ) -> std::io::Result<Self> {
        let answers = members.iter().map(|it| watched(it)).collect::<Result<_, _>>()?;
        let system = rustix::system::uname();
        let text = |part: &std::ffi::CStr| part.to_string_lossy().into_owned();
        let identity = Identity {
            host: text(system.nodename()),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            system: format!("{} {}", text(system.sysname()), text(system.release())),
        };
        let copies = Copies::new(members.to_vec(), files);
        Ok(Self { identity, runs, index, copies, answers, scans: Arc::default() })
    }

    /// Takes the newest list of scans.
    pub(super) fn refresh(&mut self) {
        self.scans = self.index.scans();
    }
}

impl Station for DaemonStation {
    fn now(&self) -> Tai {
        Clock::new().now()
    }

    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn activity(&self, runtime: &str) -> Activity {
        self.runs.activity(runtime)
    }

    fn start(&mut self, runtime: &str, plan: Plan) -> Result<(), String> {
        self.runs.start(runtime, plan)
    }

    fn stop(&mut self, runtime: &str) {
        self.runs.stop(runtime);
    }

    fn space(&self) -> Space {
        let mut space = Space::default();
        for answer in &self.answers {
            let member = space_of(answer);
            space.members.push(member.path);
            space.free_bytes += member.free_bytes.unwrap_or(0);
            space.total_bytes += member.total_bytes.unwrap_or(0);
        }
        space
    }

    fn scans(&self) -> &[StoredScan] {
        &self.scans
    }

    fn facts(&mut self, scan: &str) -> Facts {
        self.index.facts(scan)
    }

    fn file_facts(&mut self, file: &str) -> Facts {
        match self.copies.path_of(file) {
            Some(path) => self.index.file_facts(path),
            None => Facts::Failed(NO_DIRECTORY.to_owned()),
        }
    }

    fn copy(&mut self, runtime: &str, job: CopyJob) -> Result<(), String> {
        self.copies.start(runtime, job, &self.runs)
    }

    fn copying(&self, runtime: &str) -> Option<CopyState> {
        self.copies.newest(runtime)
    }

    fn problems(&mut self) -> Vec<Problem> {
        self.runs.problems()
    }
}
