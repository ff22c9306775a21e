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

fn until_stopped(job: &Running) -> End {
    while !job.stop.is_requested() {
        thread::sleep(Duration::from_millis(1));
    }
    End::Cancelled
}

fn command_of(client: &str) -> Running {
    let client = Some(Arc::from(client));
    Running { is_long: false, is_tied: true, client, ..Running::new("watch", None, None) }
}

#[test]
fn one_client_does_not_keep_the_others_out() {
    let jobs = Jobs::default();
    let begun: Vec<Job> = (0..MOST_OF_ONE)
        .map(|_| jobs.start(command_of("viewer"), until_stopped).unwrap())
        .collect();
    let error = jobs.start(command_of("viewer"), until_stopped).unwrap_err();
    assert!(error.to_string().starts_with("8 commands of viewer run already"), "{error}");
    let other = jobs.start(command_of("operator"), until_stopped).unwrap();
    assert!(jobs.is_of(other.id, "operator") && !jobs.is_of(other.id, "viewer"));
    begun.iter().chain([&other]).for_each(|job| drop(jobs.cancel(job.id)));
}

#[test]
fn a_command_that_ends_with_its_client_ends_if_none_ever_comes() {
    let jobs = Jobs::default();
    let Some(log) = OutputLog::of_past() else { return };
    let left = Running { log, ..command_of("viewer") };
    let left = jobs.start(left, until_stopped).unwrap();
    let fresh = jobs.start(command_of("viewer"), until_stopped).unwrap();
    jobs.end_ignored();
    let end = std::time::Instant::now() + Duration::from_secs(20);
    while jobs.get(left.id).unwrap().state != JobState::Cancelled {
        assert!(std::time::Instant::now() < end);
        thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(jobs.get(fresh.id).unwrap().state, JobState::Running);
    jobs.cancel(fresh.id).unwrap();
}

#[test]
fn a_client_finds_its_command_after_as_many_others_have_ended_as_run_at_once() {
    let jobs = Jobs::default();
    let ended = |jobs: &Jobs, id| {
        while jobs.get(id).unwrap().state == JobState::Running {
            thread::sleep(Duration::from_millis(1));
        }
    };
    let first = jobs.start(command_of("a"), |job| {
        job.log.put(&crate::output_log::Entry::Exit(0));
        End::Ran(0)
    });
    let first = first.unwrap().id;
    ended(&jobs, first);
    for _ in 1..MOST_SHORT {
        ended(&jobs, jobs.start(command_of("b"), |_| End::Ran(0)).unwrap().id);
    }
    assert_eq!(jobs.follow(first).unwrap().take(), Taken::Lines("{\"exit\":0}\n".into()));
}
