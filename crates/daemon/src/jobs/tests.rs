use super::*;
use crate::recorder::life::Life;
use crate::recorder::request::StartRequest;

fn recording(phase: Phase) -> Recording {
    let life = Life::in_phase(phase);
    let request = StartRequest::default();
    Recording { id: Uuid::now_v7(), request, found: false, pid: None, life, ended: None }
}

fn scan(start: i64, end: i64) -> NextScan {
    let second = 1_000_000_000;
    NextScan {
        schedule: "vgos".into(),
        session: "s".into(),
        scan: "a".into(),
        start: Tai(start * second),
        end: Tai(end * second),
        target: None,
    }
}

#[test]
fn recordings_come_before_benchmarks() {
    let now = Tai(0);
    for phase in [Phase::Starting, Phase::Armed, Phase::Recording, Phase::Stopping] {
        assert!(in_the_way(&[recording(phase)], &[], now).is_some(), "{phase:?}");
    }
    let idle = [recording(Phase::Ended), recording(Phase::Waiting)];
    assert_eq!(in_the_way(&idle, &[scan(61, 90), scan(-90, -10)], now), None);
    for soon in [scan(59, 90), scan(-5, 90)] {
        assert!(in_the_way(&idle, &[soon], now).unwrap().contains("s_a begins"));
    }
    let refused = Jobs::default().measure(
        Kind::SelfTest,
        "/nowhere".into(),
        "/m0".into(),
        Some("s_a is being recorded".into()),
    );
    assert_eq!(refused.unwrap_err().to_string(), "s_a is being recorded");
}

#[test]
fn benchmarks_end_when_a_recording_begins_and_scans_are_verified_on() {
    let jobs = Jobs::default();
    let until_stopped = |job: &Running| {
        while !job.stop.is_requested() {
            thread::sleep(Duration::from_millis(1));
        }
        End::Cancelled
    };
    let verify = Running::of_daemon(Kind::Verify, Some("s_a".into()), None);
    let verify = jobs.start(verify, until_stopped).unwrap();
    let bench = Running::of_daemon(Kind::Benchmark, None, Some("/m0".into()));
    let bench = jobs.start(bench, until_stopped).unwrap();
    assert!(matches!(
        jobs.measure(Kind::SelfTest, "/x".into(), "/m".into(), None),
        Err(Error::Many { .. })
    ));
    jobs.yield_to("s_b is being recorded");
    let ended = |id| loop {
        let job = jobs.get(id).unwrap();
        if job.state != JobState::Running {
            return job;
        }
        thread::sleep(Duration::from_millis(1));
    };
    let bench = ended(bench.id);
    assert_eq!(bench.problem.as_deref(), Some("it was ended, because s_b is being recorded"));
    assert_eq!(jobs.get(verify.id).unwrap().state, JobState::Running);
    jobs.cancel(verify.id).unwrap();
    assert_eq!((ended(verify.id).state, ended(verify.id).problem), (JobState::Cancelled, None));
}
