//! Tests of the folder of a queue.

use super::super::job::{Target, Wishes};
use super::*;

fn queue() -> (tempfile::TempDir, Queue) {
    let place = tempfile::tempdir().unwrap();
    let queue = Queue::open(&place.path().join("transfers")).unwrap();
    (place, queue)
}

fn job(scan: &str, to: &str) -> Job {
    let target = Target { to: to.into(), secret: Some(format!("{to}/secret")) };
    let wishes =
        Wishes { priority: -3, rate: Some(7), window: Some("22:00-06:00".parse().unwrap()) };
    Job {
        version: VERSION,
        scan: scan.parse().unwrap(),
        store: vec!["/data".into()],
        target,
        wishes,
        paused: false,
        removed: false,
        resumed: 0,
        rule: None,
        added: now(),
    }
}

fn add(queue: &Queue, job: Job) -> Added {
    queue.add(vec![job]).unwrap().remove(0)
}

#[test]
fn a_job_comes_back_as_it_was_added_and_its_secret_is_not_shown() {
    let (_place, queue) = queue();
    let added = add(&queue, job("r1_a", "fullbore://x:1"));
    let listed = queue.jobs().unwrap();
    assert!(listed.problems.is_empty());
    assert_eq!(listed.items.get(&added.id), Some(&added.job));
    assert_eq!(added.job.target.url(), "fullbore://x:1/secret");
    assert!(!format!("{:?}", added.job).contains("secret\""), "{:?}", added.job);
}

#[test]
fn a_scan_is_queued_once_for_a_destination_until_that_job_is_over() {
    let (_place, queue) = queue();
    let first = add(&queue, job("r1_a", "x"));
    assert!(first.new);
    assert_eq!(add(&queue, job("r1_a", "x")), Added { new: false, ..first.clone() });
    assert!(add(&queue, job("r1_a", "y")).new && add(&queue, job("r1_b", "x")).new);
    let mut record = queue.record(first.id).unwrap();
    record.end = End::Done;
    queue.put_record(first.id, &record).unwrap();
    let ruled = Job { rule: Some(9), ..job("r1_a", "x") };
    assert!(!add(&queue, ruled).new, "a rule does not make it again");
    assert!(add(&queue, job("r1_a", "x")).new);
}

#[test]
fn numbers_are_not_used_again() {
    let (_place, queue) = queue();
    let one = add(&queue, job("r1_a", "x")).id;
    queue.remove(one).unwrap();
    assert!(matches!(queue.remove(one), Err(QueueError::NoJob { .. })));
    assert!(add(&queue, job("r1_a", "x")).id > one);
}

#[test]
fn a_removed_job_of_a_rule_is_not_made_again() {
    let (_place, queue) = queue();
    let ruled = || Job { rule: Some(1), ..job("r1_a", "x") };
    let id = add(&queue, ruled()).id;
    queue.remove(id).unwrap();
    assert!(queue.jobs().unwrap().items[&id].removed);
    assert!(!add(&queue, ruled()).new);
    assert!(matches!(queue.edit(id, |_| {}), Err(QueueError::NoJob { .. })));
    assert!(add(&queue, job("r1_a", "x")).new, "a user may add it");
    queue.forget(id).unwrap();
    assert!(!queue.jobs().unwrap().items.contains_key(&id));
}

#[test]
fn files_of_other_versions_and_of_others_are_refused_and_stay() {
    let (place, queue) = queue();
    let id = add(&queue, job("r1_a", "x")).id;
    let jobs = place.path().join("transfers/jobs");
    let good = std::fs::read_to_string(jobs.join(name(id))).unwrap();
    let put = |file: &str, text: &str| {
        use std::os::unix::fs::PermissionsExt;
        std::fs::write(jobs.join(file), text).unwrap();
        std::fs::set_permissions(jobs.join(file), PermissionsExt::from_mode(0o600)).unwrap();
    };
    put("90.json", &good.replace("\"version\": 1", "\"version\": 2"));
    put("91.json", "{");
    put("92.json", &good.replace("\"r1\"", "\"../../etc\""));
    put("93.json", &good.replace("\"paused\"", "\"posed\""));
    for ignored in ["007.json", "+7.json", "x.json", "94.json.new"] {
        put(ignored, "{");
    }
    let listed = queue.jobs().unwrap();
    assert_eq!(listed.items.keys().copied().collect::<Vec<_>>(), [id]);
    let told: Vec<String> = listed.problems.iter().map(ToString::to_string).collect();
    assert_eq!(told.len(), 4, "{told:?}");
    assert!(told[0].contains("90.json: its version is 2"), "{told:?}");
    queue.put_record(90, &queue.record(90).unwrap()).unwrap();
    queue.forget_records(&listed.items).unwrap();
    assert!(place.path().join("transfers/records/90.json").exists());
    assert!(matches!(queue.edit(90, |_| {}), Err(QueueError::Version { version: 2, .. })));
}

#[test]
fn a_queue_has_one_runner() {
    let (place, queue) = queue();
    assert_eq!(queue.runner().unwrap(), None);
    let lock = queue.become_runner().unwrap();
    let status = Status { version: VERSION, pid: 77, ..Status::default() };
    queue.put_status(&status).unwrap();
    let other = Queue::open(&place.path().join("transfers")).unwrap();
    assert_eq!(other.runner().unwrap(), Some(status));
    let error = other.become_runner().unwrap_err();
    assert!(matches!(error, QueueError::RunnerRuns { pid: Some(77) }), "{error}");
    drop(lock);
    assert_eq!(other.runner().unwrap(), None);
    other.become_runner().unwrap();
}

#[test]
fn patterns_of_sessions_are_checked_when_a_rule_is_added() {
    let (_place, queue) = queue();
    let rule = |sessions: &str| Rule {
        version: VERSION,
        sessions: sessions.into(),
        store: Vec::new(),
        target: Target { to: "x".into(), secret: None },
        wishes: Wishes::default(),
        added: now(),
    };
    for bad in ["", "[", "***"] {
        let error = queue.add_rule(&rule(bad)).unwrap_err();
        assert!(matches!(error, QueueError::Pattern { .. }), "{error}");
    }
    let id = queue.add_rule(&rule("r1*")).unwrap();
    assert!(sessions(&queue.rules().unwrap().items[&id].sessions).unwrap().matches("r1234"));
    queue.remove_rule(id).unwrap();
    assert!(matches!(queue.remove_rule(id), Err(QueueError::NoRule { .. })));
}

#[test]
fn the_directory_follows_the_environment() {
    let with = |all: &[(&str, &str)]| {
        let all: BTreeMap<String, String> =
            all.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
        directory_of(|name| all.get(name).map(Into::into))
    };
    assert_eq!(with(&[]), None);
    assert_eq!(with(&[("HOME", "/h")]).unwrap(), Path::new("/h/.local/state/fullbore/transfers"));
    let state = [("XDG_STATE_HOME", "/s"), ("HOME", "/h"), ("FULLBORE_STATE", "/f")];
    assert_eq!(with(&state[..2]).unwrap(), Path::new("/s/fullbore/transfers"));
    assert_eq!(with(&state).unwrap(), Path::new("/f/transfers"));
}
