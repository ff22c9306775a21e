//! Blocks that arrive on connections that are lost, in a process that goes on or in another one.

use std::os::unix::fs::FileExt;

use fullbore_linux::ring::Block;
use fullbore_store::read::pool;
use fullbore_store::testing::{Store, StreamPlan};

use super::*;
use crate::channel::tests::channels;
use crate::governor::{Governor, Host, Limits};
use crate::outgoing::{Outgoing, SourceBlock};
use crate::schedule::BlockId;

/// A scan to send, and the receiver of the copy.
struct Sites {
    outgoing: Outgoing,
    blocks: Vec<(BlockId, u32)>,
    governor: Governor,
    members: Vec<Member>,
    arrival: Box<Arrival>,
    answers: Receiver<Answer>,
    /// Bytes of blocks that were sent.
    sent: usize,
    _stores: [Store; 2],
    _root: tempfile::TempDir,
}

fn arrive(outgoing: &Outgoing, members: &[Member]) -> (Box<Arrival>, Receiver<Answer>) {
    let origin = Origin { host: "there".into(), key: "ab12".into() };
    let taken =
        take(members, &outgoing.manifest().to_json(), Offered { bytes: 0, live: true }, &origin);
    let Ok(Taken::Arrival(arrival)) = taken else { panic!("{taken:?}") };
    let answers = arrival.answered.lock().unwrap().take().unwrap();
    (arrival, answers)
}

impl Sites {
    fn new() -> Self {
        let stores = [Store::new(2), Store::in_memory(1)];
        let laid = stores[0].lay_down("r1_a", &[StreamPlan::vdif("a"), StreamPlan::varying("b")]);
        let outgoing = Outgoing::open(&stores[0].roots(), &laid.name).unwrap();
        let blocks = outgoing.look().unwrap().blocks;
        let members = open_members(&stores[1].roots()).unwrap();
        let (arrival, answers) = arrive(&outgoing, &members);
        let root = tempfile::tempdir().unwrap();
        let host = Host::under(root.path(), root.path(), &[]);
        let governor = Governor::watching(Limits::default(), host);
        Self {
            outgoing,
            blocks,
            governor,
            members,
            arrival,
            answers,
            sent: 0,
            _stores: stores,
            _root: root,
        }
    }

    fn fetch(&self, block: BlockId) -> (SourceBlock, Block) {
        let mut memory = pool(1, self.outgoing.block_bytes()).unwrap().take().unwrap();
        (self.outgoing.fetch(block, &mut memory).unwrap(), memory)
    }

    /// Sends a block without its first bytes, over a connection that is lost at `end` of the block.
    fn send(&mut self, block: BlockId, from: usize, end: usize) {
        let (source, memory) = self.fetch(block);
        let bytes = (source.extent.bytes as usize - from) as u32;
        let (mut near, mut far) = channels();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                near.begin_data(&Message::Block { records: source.records, bytes }).unwrap();
                near.send_piece(&memory[from..end]).unwrap();
                drop(near);
            });
            let intake = Intake { governor: &self.governor, limited: false };
            receive_blocks(&self.arrival, &mut far, "there", intake).unwrap_err();
        });
        self.sent += end - from;
    }

    fn answers(&self) -> Vec<Message> {
        let message = |answer| match answer {
            Answer::Message(message) => message,
            Answer::Failed(error) => panic!("{error}"),
        };
        self.answers.try_iter().map(message).collect()
    }

    /// Ends the receiver as SIGKILL does, without a last sync, and begins again.
    fn kill_receiver(mut self) -> Self {
        // The kernel releases the lock of the scan.
        drop(self.arrival);
        (self.arrival, self.answers) = arrive(&self.outgoing, &self.members);
        self
    }
}

#[test]
fn block_is_sent_on_from_where_its_connection_was_lost() {
    let mut sites = Sites::new();
    let all = sites.blocks.clone();
    for &((stream, sequence), bytes) in &all {
        let (third, bytes) = (bytes as usize / 3, bytes as usize);
        sites.send((stream, sequence), 0, third);
        let held = |bytes: usize| Message::Held { stream, sequence, bytes: bytes as u32 };
        assert_eq!(sites.answers(), [held(third)]);
        sites.send((stream, sequence), third, 2 * third);
        assert_eq!(sites.answers(), [held(2 * third)]);
        if sequence % 3 == 0 {
            sites = sites.kill_receiver();
            let found = sites.arrival.held.all();
            assert_eq!(found.iter().map(|it| it.1 as usize).collect::<Vec<_>>(), [2 * third]);
        }
        sites.send((stream, sequence), 2 * third, bytes);
        assert_eq!(sites.answers(), []);
        assert_eq!(sites.arrival.held.all(), []);
    }
    assert_eq!(sites.sent, all.iter().map(|it| it.1 as usize).sum::<usize>(), "no byte twice");
    sites = sites.kill_receiver();
    let durable = sites.arrival.landing.durable();
    assert!(all.iter().all(|((stream, sequence), _)| durable[stream].contains(*sequence)));
}

#[test]
fn block_with_a_wrong_or_missing_beginning_is_sent_whole() {
    let mut sites = Sites::new();
    let ((stream, sequence), bytes) = sites.blocks[0];
    let (id, bytes) = ((stream, sequence), bytes as usize);
    let is_rejected = |answers: &[Message]| matches!(answers, [Message::Rejected { stream: of, sequence: at, .. }] if (*of, *at) == id);
    sites.send(id, 100, bytes);
    assert!(is_rejected(&sites.answers()), "no beginning is here");
    sites.send(id, 0, 5000);
    assert_eq!(sites.answers().len(), 1);
    sites.send(id, 6000, bytes);
    assert!(is_rejected(&sites.answers()), "less of it is here");
    sites.send(id, 0, 5000);
    assert_eq!(sites.answers().len(), 1);
    let path = sites.arrival.landing.held_path();
    let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
    file.write_all_at(&[0xff; 500], 4096 + 1000).unwrap();
    sites.send(id, 5000, bytes);
    assert!(is_rejected(&sites.answers()), "as after a loss of power");
    assert_eq!(sites.arrival.held.all(), []);
    sites.send(id, 0, bytes);
    assert_eq!(sites.answers(), []);
    sites.arrival.landing.sync().unwrap();
    assert!(sites.arrival.landing.durable()[&stream].contains(sequence));
}

#[test]
fn blocks_that_arrived_before_the_end_of_the_transfer_count() {
    let sites = Sites::new();
    let (mut near, mut far) = channels();
    let all = sites.blocks.clone();
    for (block, bytes) in &all[..3] {
        let (source, memory) = sites.fetch(*block);
        let message = Message::Block { records: source.records, bytes: *bytes };
        near.send_data(&message, &memory[..*bytes as usize]).unwrap();
    }
    drop(near);
    sites.arrival.end();
    let intake = Intake { governor: &sites.governor, limited: false };
    // The end of the connection is found when everything was taken.
    receive_blocks(&sites.arrival, &mut far, "there", intake).unwrap_err();
    sites.arrival.keep();
    let durable = sites.arrival.landing.durable();
    assert!(all[..3].iter().all(|((stream, sequence), _)| durable[stream].contains(*sequence)));
}
