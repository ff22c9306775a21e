//! Which samples of an acquisition can be trusted.
//!
//! ```text
//! raw     BIN a    BIN b    BIN c    END Ok          each frame is certified by what follows it
//!              └ a      └ b      └ c
//! raw     BIN a    BIN b    END Data overrun         b may be overwritten: withheld
//! scaled  BIN a ✓  BIN b ✓  END Data overrun         the server looks before it sends: all good
//! ```
//!
//! A server sends raw frames straight from its ring and looks only afterwards whether the writer has
//! lapped it; if so it ends the acquisition. So the frame before another frame is whole, and the last
//! one is if the end says `Ok` or `Disarmed`. Nothing else certifies: another reason, a connection
//! that dies and bytes that cannot be decoded all withhold the frame that came last. Scaled frames are
//! made in a buffer of their own and are good as soon as they are whole.

use serde::{Deserialize, Serialize};

use super::codec::{EndReason, Error};
use super::header::{Header, Process};

/// Follows one acquisition from its header to its end.
#[derive(Clone, Debug)]
pub struct Certifier {
    process: Process,
    sample_bytes: u64,
    missed: u64,
    /// Samples of whole frames.
    received: u64,
    certified: u64,
    /// The frame that is coming in: its samples.
    coming: Option<u64>,
    /// The frame that waits for what follows it: its samples.
    held: u64,
}

/// How an acquisition came to its end on this connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// The server said so.
    End(EndReason),
    /// The connection closed or broke off.
    ConnectionLost,
    /// What came was not what a PandA sends.
    Damaged(String),
    /// This side went away.
    Left,
}

impl From<&Error> for Ending {
    fn from(error: &Error) -> Self {
        Ending::Damaged(error.to_string())
    }
}

impl std::fmt::Display for Ending {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Ending::End(reason) => reason.fmt(f),
            Ending::ConnectionLost => f.write_str("connection lost"),
            Ending::Damaged(what) => f.write_str(what),
            Ending::Left => f.write_str("left by the recorder"),
        }
    }
}

/// What became of the samples of an acquisition on one connection.
///
/// `received = certified + withheld`. With indices: `missed` samples came before this connection
/// joined, and the certified ones are `missed .. missed + certified`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    /// Index of the first sample that came.
    pub missed: u64,
    /// Samples that the server says it has sent, if it came to say so.
    pub sent_by_server: Option<u64>,
    /// Samples of whole frames.
    pub received: u64,
    /// Samples that can be trusted.
    pub certified: u64,
    /// Samples of the last frame, which cannot.
    pub withheld: u64,
    /// Samples announced by a frame that broke off.
    pub cut: u64,
    /// How it ended.
    pub ending: Ending,
}

impl Tally {
    /// Whether the server counts as many samples as came. Without an end there is nothing to compare.
    pub fn agrees(&self) -> bool {
        self.sent_by_server.is_none_or(|sent| sent == self.received)
    }
}

impl Certifier {
    /// For the acquisition that begins with this header.
    pub fn new(header: &Header) -> Self {
        Certifier {
            process: header.process,
            sample_bytes: u64::from(header.sample_bytes.max(1)),
            missed: header.missed,
            received: 0,
            certified: 0,
            coming: None,
            held: 0,
        }
    }

    /// A frame of so many bytes of payload begins. Returns how many samples this certifies: the next
    /// ones of all that came.
    pub fn frame(&mut self, bytes: u64) -> u64 {
        debug_assert!(self.coming.is_none(), "a frame begins before the last one has ended");
        self.coming = Some(bytes / self.sample_bytes);
        self.certify()
    }

    /// The payload of the frame has come whole. Returns how many samples this certifies.
    pub fn frame_end(&mut self) -> u64 {
        let samples = self.coming.take().unwrap_or(0);
        self.received += samples;
        self.held += samples;
        match self.process {
            Process::Raw => 0,
            Process::Scaled => self.certify(),
        }
    }

    /// Samples certified so far.
    pub fn certified(&self) -> u64 {
        self.certified
    }

    /// Samples of whole frames that wait for what follows them.
    pub fn held(&self) -> u64 {
        self.held
    }

    /// Index of the first sample that follows the certified ones.
    pub fn next_index(&self) -> u64 {
        self.missed + self.certified
    }

    /// The end of the acquisition. The tally's `certified` includes what this certifies.
    pub fn end(mut self, sent_by_server: u64, reason: EndReason) -> Tally {
        if reason.is_good() {
            self.certify();
        }
        self.tally(Some(sent_by_server), Ending::End(reason))
    }

    /// No end will come.
    pub fn lost(self, ending: Ending) -> Tally {
        self.tally(None, ending)
    }

    fn certify(&mut self) -> u64 {
        let samples = std::mem::take(&mut self.held);
        self.certified += samples;
        samples
    }

    fn tally(self, sent_by_server: Option<u64>, ending: Ending) -> Tally {
        assert_eq!(self.received, self.certified + self.held, "the books of a PandA balance");
        Tally {
            missed: self.missed,
            sent_by_server,
            received: self.received,
            certified: self.certified,
            withheld: self.held,
            cut: self.coming.unwrap_or(0),
            ending,
        }
    }
}
