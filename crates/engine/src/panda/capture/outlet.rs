//! Where blocks of certified samples go.

use std::sync::Arc;
use std::time::Duration;

use fullbore_core::format::panda::{Closed, Header};
use fullbore_core::time::Tai;

use super::described::Described;
use crate::ring::Block;

/// One acquisition: from ARM to END.
#[derive(Clone, Debug)]
pub struct Acquisition {
    /// Counted from 1 since the recorder began.
    pub number: u64,
    /// What the PandA says of it.
    pub header: Header,
    /// The header as it came.
    pub text: String,
    /// When the header came.
    pub seen: Tai,
    /// What the PandA was set to then.
    pub settings: Described,
}

/// Certified samples in a block.
#[derive(Debug)]
pub struct Batch {
    /// The memory; its first `bytes` bytes count, whole samples.
    pub block: Block,
    /// How much of it.
    pub bytes: usize,
    /// Index of the first sample; the others follow without a hole, unless blocks are only handed on
    /// full.
    pub first: u64,
    /// How long they took to come, from the first of them until they were handed on.
    pub over: Duration,
}

/// How a recording is to go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Asked {
    /// As it goes.
    Go,
    /// Finish what is held, then end.
    Stop,
    /// End now.
    Abort,
}

/// Nothing more can be taken; the outlet says elsewhere why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Halted;

/// Takes blocks of certified samples and gives them back empty.
pub trait Outlet {
    /// What somebody asks of the recording.
    fn asked(&mut self) -> Asked;

    /// Bytes of a block that are filled, a multiple of `sample_bytes` and at most `stride`.
    fn block_bytes(&self, sample_bytes: usize, stride: usize) -> usize;

    /// After how long a block that is not full is handed on all the same; `None`: never before the end.
    fn hand_on_after(&self) -> Option<Duration>;

    /// Whether an acquisition that begins now has a place. Until then nothing is armed.
    fn is_ready(&mut self) -> bool {
        true
    }

    /// Whether no further acquisition is wanted, though more were asked for.
    fn wants_no_more(&self) -> bool {
        false
    }

    /// An acquisition begins.
    fn begin(&mut self, acquisition: &Arc<Acquisition>) -> Result<(), Halted>;

    /// Takes samples.
    fn filled(&mut self, batch: Batch);

    /// Takes a copy of certified samples in a block that is handed on only when it is full, if they are old. They are
    /// the beginning of the next block.
    fn keep(&mut self, _samples: &[u8], _old: Duration) {}

    /// A block that is empty again; waits for one for at most so long.
    fn emptied(&mut self, wait: Duration) -> Result<Option<Block>, Halted>;

    /// Something that should be known, and is in no acquisition's account.
    fn warn(&mut self, _text: &str) {}

    /// The acquisition has ended; all of its blocks were handed on.
    fn end(&mut self, closed: Closed);
}
