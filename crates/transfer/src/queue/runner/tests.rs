//! Tests of the runner with a carrier that only pretends.

use std::sync::atomic::AtomicUsize;

use super::super::job::{Target, Wishes};
use super::*;
use crate::governor::Limits;

/// Sends nothing. Destinations are named after what they do.
#[derive(Default)]
struct Pretender {
    running: AtomicUsize,
    most: AtomicUsize,
    /// Jobs wait until so many run at once. On a busy machine, the second starts late.
    wanted: AtomicUsize,
    order: Mutex<Vec<String>>,
}

impl Carrier for Pretender {
    fn carry(
        &self,
        job: &Job,
        _: &Arc<Governor>,
        stop: &StopHandle,
        tell: &mut dyn FnMut(Carried),
    ) -> Result<Delivered, Failure> {
        let running = self.running.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(running, Ordering::SeqCst);
        let first = {
            let mut order = self.order.lock().unwrap();
            order.push(job.scan.to_string());
            order.iter().filter(|it| **it == job.scan.to_string()).count() == 1
        };
        tell(Carried { done_bytes: 1, bytes: 2, holding: None });
        let (mut stopped, begun) = (stop.wait(Duration::from_millis(50)), Instant::now());
        let is_alone = || self.most.load(Ordering::SeqCst) < self.wanted.load(Ordering::SeqCst);
        while !stopped && is_alone() && begun.elapsed() < Duration::from_secs(10) {
            stopped = stop.wait(Duration::from_millis(5));
        }
        self.running.fetch_sub(1, Ordering::SeqCst);
        let failed = |how, why: &str| Err(Failure { how, why: why.into() });
        match job.target.to.as_str() {
            "panics" => panic!("as it should"),
            "fails" => failed(Ended::Failed, "never"),
            "is away once" if first => failed(Ended::Away, "nobody there"),
            "hangs" => {
                while !stop.wait(Duration::from_secs(60)) {}
                failed(Ended::Stopped, "stopped")
            }
            _ if stopped => failed(Ended::Stopped, "stopped"),
            _ => Ok(Delivered { bytes: 2, missing_blocks: 0 }),
        }
    }

    fn has_receipt(
        &self,
        _: &Target,
        _: &[std::path::PathBuf],
        _: &fullbore_core::name::ScanName,
    ) -> bool {
        false
    }
}

fn job(scan: &str, to: &str, priority: i32) -> Job {
    Job {
        version: VERSION,
        scan: scan.parse().unwrap(),
        store: vec!["/nowhere".into()],
        target: Target { to: to.into(), secret: None },
        wishes: Wishes { priority, ..Wishes::default() },
        paused: false,
        removed: false,
        resumed: 0,
        rule: None,
        added: now(),
    }
}

struct Place {
    _directory: tempfile::TempDir,
    queue: Queue,
    carrier: Pretender,
}

fn place(jobs: Vec<Job>) -> Place {
    let directory = tempfile::tempdir().unwrap();
    let queue = Queue::open(&directory.path().join("transfers")).unwrap();
    queue.add(jobs).unwrap();
    Place { _directory: directory, queue, carrier: Pretender::default() }
}

fn run_all(place: &Place, all: usize, stop: &StopHandle) -> (Ran, Vec<RunnerEvent>) {
    let governor = Governor::start(Limits::default());
    let settings = RunnerSettings { slots: Slots { all, per_destination: all }, once: true };
    let mut events = Vec::new();
    let tell = &mut |event| events.push(event);
    let ran = run(&place.queue, settings, &governor, &place.carrier, stop, tell).unwrap();
    (ran, events)
}

#[test]
fn jobs_run_by_priority_and_end_as_they_do() {
    let place = place(vec![
        job("r_low", "x", -1),
        job("r_panics", "panics", 5),
        job("r_fails", "fails", 4),
        job("r_high", "x", 9),
    ]);
    let (ran, _) = run_all(&place, 1, &StopHandle::default());
    assert_eq!(ran, Ran { done: 2, failed: 2 });
    let order = place.carrier.order.lock().unwrap().clone();
    assert_eq!(order, ["r_high", "r_panics", "r_fails", "r_low"]);
    let ends: Vec<End> = (1..=4).map(|id| place.queue.record(id).unwrap().end).collect();
    assert_eq!(ends, [End::Done, End::Failed, End::Failed, End::Done]);
    assert_eq!(place.queue.record(3).unwrap().last_error.as_deref(), Some("never"));
    // The next runner has nothing to do.
    assert_eq!(run_all(&place, 1, &StopHandle::default()).0, Ran::default());
    assert_eq!(place.carrier.order.lock().unwrap().len(), 4);
}

#[test]
fn no_more_run_at_once_than_there_are_slots_and_a_failure_that_passes_is_tried_again() {
    let mut jobs: Vec<Job> = (0..6).map(|n| job(&format!("r_{n}"), &format!("x{n}"), 0)).collect();
    jobs.push(job("r_away", "is away once", 0));
    let place = place(jobs);
    place.carrier.wanted.store(3, Ordering::SeqCst);
    let (ran, events) = run_all(&place, 3, &StopHandle::default());
    assert_eq!(ran, Ran { done: 7, failed: 0 });
    assert_eq!(place.carrier.most.load(Ordering::SeqCst), 3);
    let interrupted = events.iter().filter(|it| matches!(it, RunnerEvent::Interrupted(7, ..)));
    assert_eq!(interrupted.count(), 1);
    assert_eq!(place.queue.record(7).unwrap().attempts, 2);
}

#[test]
fn a_stop_ends_the_transfers_and_a_removed_job_is_stopped_and_forgotten() {
    let place = place(vec![job("r_a", "hangs", 0), job("r_b", "hangs", 0)]);
    let stop = StopHandle::default();
    std::thread::scope(|scope| {
        let runner = scope.spawn(|| run_all(&place, 2, &stop));
        let since = Instant::now();
        let until = |there: &dyn Fn() -> bool| {
            while !there() {
                assert!(since.elapsed() < Duration::from_secs(20));
                std::thread::sleep(Duration::from_millis(10));
            }
        };
        let running = || place.carrier.running.load(Ordering::SeqCst);
        until(&|| place.carrier.order.lock().unwrap().len() == 2);
        place.queue.remove(1).unwrap();
        let listed = || place.queue.runner().unwrap().map_or(0, |it| it.jobs.len());
        until(&|| listed() == 1);
        stop.stop();
        let (ran, _) = runner.join().unwrap();
        assert_eq!(ran, Ran::default());
        assert_eq!(running(), 0);
    });
    assert_eq!(place.queue.record(2).unwrap().end, End::None);
}
