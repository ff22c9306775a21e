//! A station of memory, whose recorders do what a test says.

use std::collections::BTreeMap;

use fullbore_time::Tai;

use crate::station::{
    Activity, CopyJob, CopyState, Ended, Facts, Identity, Phase, Plan, Problem, Running, ScanFacts,
    Space, Station, StoredScan, Traffic,
};

/// The station.
#[derive(Clone, Debug)]
pub struct MemoryStation {
    /// Its clock.
    pub now: Tai,
    /// The recordings that it was told to start, in order, with their runtimes.
    pub started: Vec<(String, Plan)>,
    /// The runtimes whose recording it was told to stop, in order.
    pub stopped: Vec<String>,
    /// The stored scans.
    pub scans: Vec<StoredScan>,
    /// What it knows of any of them.
    pub facts: Facts,
    /// Problems that were not taken yet.
    pub problems: Vec<Problem>,
    /// The copies.
    pub copies: BTreeMap<String, CopyState>,
    /// The reason why a start is refused.
    pub refusal: Option<String>,
    activities: BTreeMap<String, Activity>,
    identity: Identity,
}

impl Default for MemoryStation {
    fn default() -> Self {
        let identity = Identity {
            host: "station".into(),
            version: "0.1.0".into(),
            system: "Linux 6.1".into(),
        };
        let facts = ScanFacts {
            format: Some("VDIF".into()),
            tracks: Some(32),
            start: "2026-11-21T19:24:24Z".parse().ok(),
            seconds: Some(2.0),
            bit_rate: Some(2048e6),
            missing_bytes: Some(0),
            frame_bytes: Some(8032),
            bytes: 514_048_000,
        };
        Self {
            now: Tai(1_795_000_000_000_000_000),
            started: Vec::new(),
            stopped: Vec::new(),
            scans: Vec::new(),
            facts: Facts::Known(facts),
            problems: Vec::new(),
            copies: BTreeMap::new(),
            refusal: None,
            activities: BTreeMap::new(),
            identity,
        }
    }
}

impl MemoryStation {
    /// Lets some seconds pass.
    pub fn pass(&mut self, seconds: f64) {
        self.now = self.now.plus_ns((seconds * 1e9) as i64);
    }

    /// Ends the recording of a runtime; with a problem, by itself. Its scan is stored.
    pub fn end(&mut self, runtime: &str, problem: Option<&str>) {
        let Some(Activity::Running(running)) = self.activities.get(runtime).cloned() else {
            return;
        };
        let Running { asked, scan, phase, traffic, .. } = running;
        self.scans.push(StoredScan { name: scan.clone(), bytes: traffic.bytes });
        let (at, was_stopped) = (self.now, phase == Phase::Stopping);
        let problem = problem.map(str::to_owned);
        if let Some(text) = &problem {
            self.problems.push(Problem { at, text: text.clone() });
        }
        let last = Some(Ended { asked, scan, at, was_stopped, problem });
        self.activities.insert(runtime.to_owned(), Activity::Idle { last });
    }

    /// Lets the recording of a runtime receive.
    pub fn receive(&mut self, runtime: &str, traffic: Traffic) {
        if let Some(Activity::Running(running)) = self.activities.get_mut(runtime) {
            running.traffic = traffic;
            if running.phase == Phase::Starting {
                running.phase = Phase::On;
            }
        }
    }

    /// The recordings that run.
    pub fn running(&self) -> usize {
        self.activities.values().filter(|it| matches!(it, Activity::Running(_))).count()
    }
}

impl Station for MemoryStation {
    fn now(&self) -> Tai {
        self.now
    }

    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn activity(&self, runtime: &str) -> Activity {
        self.activities.get(runtime).cloned().unwrap_or(Activity::Idle { last: None })
    }

    fn start(&mut self, runtime: &str, plan: Plan) -> Result<(), String> {
        if let Some(why) = &self.refusal {
            return Err(why.clone());
        }
        if let Activity::Running(running) = self.activity(runtime) {
            assert_eq!(running.phase, Phase::Stopping, "one at a time");
            self.end(runtime, None);
        }
        assert!(self.scans.iter().all(|it| it.name != plan.scan), "{} is taken", plan.scan);
        self.started.push((runtime.to_owned(), plan.clone()));
        let (asked, scan) = (plan.asked, plan.scan);
        let number = self.started.len() as u64;
        let (phase, traffic) = (Phase::Starting, Traffic::default());
        let running = Running { asked, scan, number, phase, traffic };
        self.activities.insert(runtime.to_owned(), Activity::Running(running));
        Ok(())
    }

    fn stop(&mut self, runtime: &str) {
        self.stopped.push(runtime.to_owned());
        if let Some(Activity::Running(running)) = self.activities.get_mut(runtime) {
            running.phase = Phase::Stopping;
        }
    }

    fn space(&self) -> Space {
        let members = (0..4).map(|number| format!("/mnt/disk{number}")).collect();
        Space { members, free_bytes: 95_881_400_000, total_bytes: 101_105_000_000 }
    }

    fn scans(&self) -> &[StoredScan] {
        &self.scans
    }

    fn facts(&mut self, _: &str) -> Facts {
        self.facts.clone()
    }

    fn file_facts(&mut self, _: &str) -> Facts {
        self.facts.clone()
    }

    fn copy(&mut self, runtime: &str, job: CopyJob) -> Result<(), String> {
        let state = CopyState { current: job.start, job, is_active: true };
        self.copies.insert(runtime.to_owned(), state);
        Ok(())
    }

    fn copying(&self, runtime: &str) -> Option<CopyState> {
        self.copies.get(runtime).cloned()
    }

    fn problems(&mut self) -> Vec<Problem> {
        std::mem::take(&mut self.problems)
    }
}
