//! The schedule beside a model of it: one state for each block. The environment chooses the order of all events.

use proptest::prelude::*;

use super::*;

/// Streams of the model.
const STREAMS: u16 = 3;

/// Blocks of each stream.
const BLOCKS: u64 = 12;

/// Data connections.
const CONNECTIONS: u32 = 3;

/// An event of the transfer.
#[derive(Clone, Debug)]
enum Step {
    Has(u16, Range<u64>),
    Add(BlockId, u32),
    Take(u32),
    TakeOver(BlockId, u32),
    Missing(BlockId),
    Rejected(BlockId),
    Lost(u32),
    Durable(u16, Range<u64>),
}

/// The state of a block that exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    New,
    InFlight(u32),
    Returned,
    Durable,
    Missing,
}

#[derive(Clone, Copy, Debug)]
struct Block {
    bytes: u32,
    state: State,
    /// The number of times that it was taken.
    taken: u64,
}

#[derive(Debug, Default)]
struct Model {
    schedule: Schedule,
    blocks: BTreeMap<BlockId, Block>,
    has: BTreeSet<BlockId>,
    next_stream: u16,
}

impl Model {
    fn play(&mut self, step: Step) {
        match step {
            Step::Has(stream, run) => {
                self.schedule.has(stream, &std::iter::once(run.clone()).collect());
                for sequence in run {
                    self.has.insert((stream, sequence));
                    self.set((stream, sequence), |_| State::Durable);
                }
            }
            Step::Add(id, bytes) => {
                self.schedule.add(id, bytes);
                let state = if self.has.contains(&id) { State::Durable } else { State::New };
                self.blocks.entry(id).or_insert(Block { bytes, state, taken: 0 });
            }
            Step::Take(connection) => {
                self.take(connection);
            }
            Step::TakeOver(id, connection) => {
                let block = self.blocks.get_mut(&id);
                let block = block.filter(|it| matches!(it.state, State::InFlight(_)));
                assert_eq!(self.schedule.take_over(id, connection), block.is_some());
                if let Some(block) = block {
                    (block.state, block.taken) = (State::InFlight(connection), block.taken + 1);
                }
            }
            Step::Missing(id) => {
                self.schedule.missing(id);
                self.set(id, |state| match state {
                    State::Durable => State::Durable,
                    _ => State::Missing,
                });
            }
            Step::Rejected(id) => {
                self.schedule.rejected(id);
                self.set(id, |state| match state {
                    State::InFlight(_) => State::Returned,
                    state => state,
                });
            }
            Step::Lost(connection) => {
                self.schedule.lost(connection);
                for block in self.blocks.values_mut() {
                    if block.state == State::InFlight(connection) {
                        block.state = State::Returned;
                    }
                }
            }
            Step::Durable(stream, run) => self.durable(stream, run),
        }
        self.check();
    }

    fn set(&mut self, id: BlockId, change: impl Fn(State) -> State) {
        if let Some(block) = self.blocks.get_mut(&id) {
            block.state = change(block.state);
        }
    }

    fn durable(&mut self, stream: u16, run: Range<u64>) {
        let is_known = run.clone().all(|sequence| self.blocks.contains_key(&(stream, sequence)));
        let result = self.schedule.durable(stream, &std::iter::once(run.clone()).collect());
        assert_eq!(result.is_ok(), is_known, "{result:?}");
        if is_known {
            run.for_each(|sequence| self.set((stream, sequence), |_| State::Durable));
        }
    }

    fn take(&mut self, connection: u32) -> Option<BlockId> {
        let expected = self.next();
        let taken = self.schedule.take(connection);
        assert_eq!(taken, expected);
        let id = taken?;
        let block = self.blocks.get_mut(&id).expect("it exists");
        if block.state == State::New {
            self.next_stream = id.0 + 1;
        }
        (block.state, block.taken) = (State::InFlight(connection), block.taken + 1);
        Some(id)
    }

    /// The first block to send again, or else the first new one of the next stream in turn.
    fn next(&self) -> Option<BlockId> {
        let first = |state: State, stream: Option<u16>| {
            let is_one = |(id, block): &(&BlockId, &Block)| {
                block.state == state && stream.is_none_or(|stream| stream == id.0)
            };
            self.blocks.iter().find(is_one).map(|(id, _)| *id)
        };
        let mut in_turn = (0..STREAMS).map(|after| (self.next_stream + after) % STREAMS);
        let new = || in_turn.find_map(|stream| first(State::New, Some(stream)));
        first(State::Returned, None).or_else(new)
    }

    /// Checks that the progress and the state of every block agree.
    fn check(&self) {
        let mut expected = Progress::default();
        for block in self.blocks.values() {
            let bytes = u64::from(block.bytes);
            expected.blocks += 1;
            expected.bytes += bytes;
            expected.taken_bytes += bytes * block.taken;
            expected.again_bytes += bytes * block.taken.saturating_sub(1);
            match block.state {
                State::Durable => {
                    expected.durable_blocks += 1;
                    expected.durable_bytes += bytes;
                    expected.had_bytes += if block.taken == 0 { bytes } else { 0 };
                }
                State::Missing => {
                    expected.missing_blocks += 1;
                    expected.missing_bytes += bytes;
                }
                State::New | State::InFlight(_) | State::Returned => {}
            }
        }
        assert_eq!(self.schedule.progress(), expected);
        let is_over = |block: &Block| matches!(block.state, State::Durable | State::Missing);
        assert_eq!(self.schedule.is_complete(), self.blocks.values().all(is_over));
        let missing = self.blocks.iter().filter(|(_, block)| block.state == State::Missing);
        assert!(self.schedule.missing_blocks().into_iter().eq(missing.map(|(id, _)| *id)));
    }

    /// Takes every block that is left, and makes it durable.
    fn finish(&mut self) {
        (0..CONNECTIONS).for_each(|connection| self.play(Step::Lost(connection)));
        let mut sent = BTreeSet::new();
        while let Some(id) = self.take(0) {
            assert!(sent.insert(id), "{id:?} was taken twice");
        }
        for (stream, sequence) in sent {
            self.play(Step::Durable(stream, sequence..sequence + 1));
        }
        assert!(self.schedule.is_complete());
        assert!(self.schedule.in_flight.is_empty() && self.schedule.returned.is_empty());
        let is_done = |stream: &Stream| stream.new.is_empty();
        assert!(self.schedule.streams.values().all(is_done));
    }
}

fn step() -> impl Strategy<Value = Step> {
    let id = || (0..STREAMS, 0..BLOCKS);
    let run = || (0..BLOCKS, 1u64..5).prop_map(|(start, count)| start..start + count);
    prop_oneof![
        1 => (0..STREAMS, run()).prop_map(|(stream, run)| Step::Has(stream, run)),
        8 => (id(), 1u32..4).prop_map(|(id, bytes)| Step::Add(id, bytes)),
        8 => (0..CONNECTIONS).prop_map(Step::Take),
        2 => (id(), 0..CONNECTIONS).prop_map(|(id, of)| Step::TakeOver(id, of)),
        1 => id().prop_map(Step::Missing),
        2 => id().prop_map(Step::Rejected),
        1 => (0..CONNECTIONS).prop_map(Step::Lost),
        4 => (0..STREAMS, run()).prop_map(|(stream, run)| Step::Durable(stream, run)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn blocks_become_durable_or_missing_in_any_order_of_events(
        steps in prop::collection::vec(step(), 0..150),
    ) {
        let mut model = Model::default();
        steps.into_iter().for_each(|step| model.play(step));
        model.finish();
    }
}

#[test]
fn streams_go_in_turn_and_each_in_order() {
    let mut schedule = Schedule::default();
    for stream in [0, 1, 7] {
        (0..2).for_each(|sequence| schedule.add((stream, sequence), 4096));
    }
    let taken: Vec<_> = std::iter::from_fn(|| schedule.take(0)).collect();
    assert_eq!(taken, [(0, 0), (1, 0), (7, 0), (0, 1), (1, 1), (7, 1)]);
}

#[test]
fn lost_connection_returns_its_blocks_and_no_others() {
    let mut schedule = Schedule::default();
    (0..6).for_each(|sequence| schedule.add((0, sequence), 100));
    assert!((0..6).all(|at| schedule.take(at % 2).is_some()));
    schedule.durable(0, &std::iter::once(0..3).collect()).unwrap();
    schedule.lost(0);
    assert_eq!((schedule.take(1), schedule.take(1)), (Some((0, 4)), None));
    assert_eq!((schedule.progress().taken_bytes, schedule.progress().again_bytes), (700, 100));
    schedule.durable(0, &std::iter::once(3..6).collect()).unwrap();
    assert!(schedule.is_complete());
}

#[test]
fn resumed_transfer_sends_only_the_rest() {
    let mut schedule = Schedule::default();
    schedule.has(0, &[0..3, 5..6].into_iter().collect());
    (0..7).for_each(|sequence| schedule.add((0, sequence), 10));
    let taken: Vec<_> = std::iter::from_fn(|| schedule.take(0)).collect();
    assert_eq!(taken, [(0, 3), (0, 4), (0, 6)]);
    assert_eq!(schedule.progress().had_bytes, 40);
}

#[test]
fn unknown_durable_block_is_an_error_that_changes_nothing() {
    let mut schedule = Schedule::default();
    schedule.add((2, 0), 10);
    schedule.take(0);
    let before = schedule.progress();
    let error = schedule.durable(2, &std::iter::once(0..9).collect()).unwrap_err();
    assert_eq!(
        error,
        "the receiver reports block 1 of stream 2 as durable, and there is no such block"
    );
    assert!(schedule.durable(3, &std::iter::once(0..1).collect()).is_err());
    assert!(schedule.durable(3, &BlockSet::default()).is_ok());
    assert_eq!(schedule.progress(), before);
}

#[test]
fn half_a_million_blocks_in_order_take_a_few_runs() {
    const COUNT: u64 = 500_000;
    let mut schedule = Schedule::default();
    (0..COUNT).for_each(|sequence| schedule.add((0, sequence), 4 << 20));
    for round in 0..COUNT / 1000 {
        assert!((0..1000).all(|at| schedule.take(at % 8).is_some()));
        let from = round * 1000;
        schedule.durable(0, &std::iter::once(from..from + 1000).collect()).unwrap();
        let stream = &schedule.streams[&0];
        let sets = [&stream.known, &stream.new, &stream.taken, &stream.durable];
        assert!(sets.iter().all(|set| set.runs().count() <= 1));
        assert!(schedule.in_flight.is_empty());
    }
    assert!(schedule.is_complete());
    assert_eq!(schedule.progress().durable_bytes, COUNT * (4 << 20));
}
