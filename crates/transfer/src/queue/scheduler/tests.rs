//! Tests in which the environment decides when transfers end, how, and what the user changes meanwhile.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

const SLOTS: Slots = Slots { all: 3, per_destination: 2 };

fn task(destination: &str, priority: i32) -> Task {
    Task { destination: destination.to_owned(), priority, paused: false, window: None }
}

fn at(seconds: u64) -> Now {
    let at = Duration::from_secs(seconds);
    Now { at, second_of_day: (seconds % 86_400) as u32 }
}

fn decisions(scheduler: &mut Scheduler, now: Now) -> Vec<Action> {
    std::iter::from_fn(|| scheduler.next(now)).collect()
}

#[test]
fn jobs_start_by_priority_and_then_by_age() {
    let mut scheduler = Scheduler::new(Slots { all: 1, per_destination: 1 });
    for (id, priority) in [(1, 0), (2, 5), (3, 0), (4, 5)] {
        scheduler.put(id, task("x", priority));
    }
    let mut order = Vec::new();
    while let Some(Action::Start(id)) = scheduler.next(at(0)) {
        order.push(id);
        scheduler.ended(id, Ended::Done, at(0).at);
    }
    assert_eq!(order, [2, 4, 1, 3]);
    assert!(scheduler.is_idle());
}

#[test]
fn destinations_take_turns_within_a_priority() {
    let mut scheduler = Scheduler::new(Slots { all: 2, per_destination: 2 });
    for id in 1..=3 {
        scheduler.put(id, task("x", 0));
        scheduler.put(10 + id, task("y", 0));
    }
    assert_eq!(decisions(&mut scheduler, at(0)), [Action::Start(1), Action::Start(11)]);
    scheduler.ended(11, Ended::Done, at(1).at);
    assert_eq!(decisions(&mut scheduler, at(1)), [Action::Start(12)]);
}

#[test]
fn an_urgent_job_preempts_the_lowest_and_that_continues_afterwards() {
    let mut scheduler = Scheduler::new(Slots { all: 2, per_destination: 2 });
    scheduler.put(1, task("x", 1));
    scheduler.put(2, task("x", 0));
    assert_eq!(decisions(&mut scheduler, at(0)), [Action::Start(1), Action::Start(2)]);
    scheduler.put(3, task("y", 5));
    assert_eq!(decisions(&mut scheduler, at(1)), [Action::Stop(2)]);
    assert_eq!(scheduler.state(3, at(1)), Some(State::Queued));
    scheduler.ended(2, Ended::Stopped, at(2).at);
    assert_eq!(decisions(&mut scheduler, at(2)), [Action::Start(3)]);
    scheduler.ended(3, Ended::Done, at(3).at);
    assert_eq!(decisions(&mut scheduler, at(3)), [Action::Start(2)]);
}

#[test]
fn a_destination_that_is_away_holds_all_of_its_jobs_and_is_tried_by_one() {
    let mut scheduler = Scheduler::new(SLOTS);
    for id in 1..=3 {
        scheduler.put(id, task("x", 0));
    }
    scheduler.put(4, task("y", 0));
    decisions(&mut scheduler, at(0));
    scheduler.ended(1, Ended::Away, at(0).at);
    scheduler.ended(2, Ended::Away, at(0).at);
    assert_eq!(scheduler.state(3, at(1)), Some(State::Away(Duration::from_secs(1))));
    assert_eq!(scheduler.state(4, at(1)), Some(State::Running), "another destination");
    assert_eq!(decisions(&mut scheduler, at(1)), []);
    assert_eq!(decisions(&mut scheduler, at(2)), [Action::Start(1)]);
    assert_eq!(scheduler.state(3, at(2)), Some(State::DestinationBusy));
    scheduler.progressed(1);
    assert_eq!(decisions(&mut scheduler, at(2)), [Action::Start(2)]);
}

#[test]
fn pauses_double_up_to_a_limit_and_end_with_progress() {
    let mut backoff = Backoff::default();
    let pauses: Vec<u64> = (0..12)
        .map(|_| {
            backoff.fail(Duration::ZERO);
            backoff.left(Duration::ZERO).as_secs()
        })
        .collect();
    assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300]);
    let mut scheduler = Scheduler::new(SLOTS);
    scheduler.put(1, task("x", 0));
    decisions(&mut scheduler, at(0));
    scheduler.ended(1, Ended::Later, at(0).at);
    assert_eq!(scheduler.state(1, at(0)), Some(State::Retry(Duration::from_secs(1))));
    scheduler.retry(1);
    assert_eq!(decisions(&mut scheduler, at(0)), [Action::Start(1)]);
}

#[test]
fn a_window_stops_and_starts_a_job() {
    let mut scheduler = Scheduler::new(SLOTS);
    let window = Some("00:00-01:00".parse().unwrap());
    scheduler.put(1, Task { window, ..task("x", 0) });
    assert_eq!(decisions(&mut scheduler, at(7200)), []);
    assert_eq!(scheduler.state(1, at(7200)), Some(State::OutsideWindow));
    assert_eq!(decisions(&mut scheduler, at(86_400)), [Action::Start(1)]);
    assert_eq!(decisions(&mut scheduler, at(86_400 + 3600)), [Action::Stop(1)]);
}

/// An operation of the environment.
#[derive(Clone, Debug)]
enum Step {
    Put { id: u64, destination: u8, priority: i32, paused: bool, window: bool },
    Remove(u64),
    Retry(u64),
    Progress(u64),
    End(prop::sample::Index, Ended),
    Pass(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let id = || 0u64..8;
    let how = prop::sample::select(vec![
        Ended::Done,
        Ended::Failed,
        Ended::Stopped,
        Ended::Away,
        Ended::Later,
    ]);
    prop_oneof![
        4 => (id(), 0u8..3, 0i32..3, any::<bool>(), any::<bool>()).prop_map(
            |(id, destination, priority, paused, window)| Step::Put {
                id, destination, priority, paused: paused && id % 2 == 0, window: window && id % 3 == 0
            }
        ),
        1 => id().prop_map(Step::Remove),
        1 => id().prop_map(Step::Retry),
        1 => id().prop_map(Step::Progress),
        5 => (any::<prop::sample::Index>(), how).prop_map(|(index, how)| Step::End(index, how)),
        3 => (0u64..5000).prop_map(Step::Pass),
    ]
}

/// The environment: it knows which transfers it was told to run, and nothing else.
#[derive(Default)]
struct Environment {
    running: BTreeSet<u64>,
    stopping: BTreeSet<u64>,
    tasks: BTreeMap<u64, Task>,
    seconds: u64,
}

impl Environment {
    fn obey(&mut self, scheduler: &mut Scheduler) {
        let now = at(self.seconds);
        while let Some(action) = scheduler.next(now) {
            match action {
                Action::Start(id) => {
                    assert!(self.running.insert(id), "{id} runs already");
                    let task = &self.tasks[&id];
                    assert!(!task.paused, "{id} is paused");
                    assert!(task.window.is_none_or(|it| it.contains(now.second_of_day)));
                }
                Action::Stop(id) => {
                    assert!(self.running.contains(&id), "{id} does not run");
                    assert!(self.stopping.insert(id), "{id} is stopped twice");
                }
            }
            self.check_slots();
        }
    }

    fn check_slots(&self) {
        assert!(self.running.len() <= SLOTS.all);
        for name in ["0", "1", "2"] {
            let there = self.running.iter().filter(|id| self.destination(**id) == Some(name));
            assert!(there.count() <= SLOTS.per_destination);
        }
    }

    /// A transfer of a removed job still has its slot.
    fn destination(&self, id: u64) -> Option<&str> {
        self.tasks.get(&id).map(|it| it.destination.as_str())
    }

    /// No job waits that could run, and none waits for one of a lower priority.
    fn check_order(&self, scheduler: &Scheduler) {
        let now = at(self.seconds);
        for (id, task) in &self.tasks {
            let Some(State::Queued | State::DestinationBusy) = scheduler.state(*id, now) else {
                continue;
            };
            let blockers = scheduler.blockers(&task.destination);
            assert!(!blockers.is_empty(), "{id} could run");
            let lower = |it: &u64| scheduler.jobs[it].task.priority < task.priority;
            let stops = blockers.iter().any(|it| self.stopping.contains(it));
            assert!(stops || !blockers.iter().any(lower), "{id} waits for a lower priority");
        }
    }

    fn end(&mut self, id: u64, how: Ended, scheduler: &mut Scheduler) {
        self.running.remove(&id);
        self.stopping.remove(&id);
        scheduler.ended(id, how, at(self.seconds).at);
    }
}

proptest! {
    #[test]
    fn limits_and_order_hold_whatever_the_environment_does(
        steps in prop::collection::vec(step(), 1..120)
    ) {
        let mut scheduler = Scheduler::new(SLOTS);
        let mut world = Environment::default();
        for step in steps {
            match step {
                Step::Put { id, destination, priority, paused, window } => {
                    // A number is not used again while the transfer of a removed job ends.
                    let ends = world.running.contains(&id) && scheduler.jobs.get(&id).is_none_or(|it| it.removed);
                    if ends {
                        continue;
                    }
                    let known = world.destination(id).map(str::to_owned);
                    let destination = known.unwrap_or_else(|| destination.to_string());
                    let window = window.then(|| "00:00-12:00".parse().unwrap());
                    let task = Task { destination, priority, paused, window };
                    scheduler.put(id, task.clone());
                    world.tasks.insert(id, task);
                }
                Step::Remove(id) => {
                    scheduler.remove(id);
                    if !world.running.contains(&id) {
                        world.tasks.remove(&id);
                    }
                }
                Step::Retry(id) => scheduler.retry(id),
                Step::Progress(id) if world.running.contains(&id) => scheduler.progressed(id),
                Step::Progress(_) => {}
                Step::End(index, how) => {
                    let running: Vec<u64> = world.running.iter().copied().collect();
                    if !running.is_empty() {
                        world.end(*index.get(&running), how, &mut scheduler);
                    }
                }
                Step::Pass(seconds) => world.seconds += seconds,
            }
            world.tasks.retain(|id, _| scheduler.jobs.contains_key(id));
            world.obey(&mut scheduler);
            world.check_order(&scheduler);
            for id in &world.running {
                prop_assert_eq!(scheduler.state(*id, at(world.seconds)), Some(State::Running));
            }
        }
        // The user resumes everything, and every transfer succeeds: in the end all jobs are over.
        for (id, task) in world.tasks.clone() {
            let task = Task { paused: false, window: None, ..task };
            scheduler.put(id, task.clone());
            world.tasks.insert(id, task);
        }
        for _ in 0..100 {
            world.obey(&mut scheduler);
            for id in world.running.clone() {
                let how = if world.stopping.contains(&id) { Ended::Stopped } else { Ended::Done };
                world.end(id, how, &mut scheduler);
            }
            world.tasks.retain(|id, _| scheduler.jobs.contains_key(id));
            world.seconds += 60;
        }
        prop_assert!(scheduler.is_idle() && world.running.is_empty());
    }
}
