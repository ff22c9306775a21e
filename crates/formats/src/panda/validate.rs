//! Validates the samples of an acquisition: the data after a frame certifies it, otherwise the frame is withheld.
//!
//! ```text
//! raw     BIN a    BIN b    BIN c    END Ok          each frame is certified by what follows it
//!              └ a      └ b      └ c
//! raw     BIN a    BIN b    END Data overrun         b may be overwritten: withheld
//! scaled  BIN a ✓  BIN b ✓  END Data overrun         the server looks before it sends: all good
//! ```
//!
//! A server sends raw frames directly from its ring and checks only afterwards for an overrun by the writer; in that
//! case it ends the acquisition. So a frame is whole if another frame follows, and the last one is if the end has the
//! reason `Ok` or `Disarmed`. In all other cases the last frame is withheld: another reason, a broken connection, or
//! bytes that cannot be decoded. Scaled frames are made in a buffer of their own and are good as soon as they are
//! whole.

use serde::{Deserialize, Serialize};

use super::codec::{EndReason, Error};
use super::header::{Header, Process};

/// Validates the samples of one acquisition from its header to its end.
#[derive(Clone, Debug)]
pub struct SampleValidator {
    process: Process,
    sample_bytes: u64,
    missed: u64,
    /// Samples of whole frames.
    received: u64,
    certified: u64,
    /// Samples of the frame that is being received.
    coming: Option<u64>,
    /// Samples of the frame that waits for its certification.
    held: u64,
}

/// The end of an acquisition on this connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// The server reported the end.
    End(EndReason),
    /// The connection closed or broke.
    ConnectionLost,
    /// The received bytes are not those of a PandA.
    Damaged(String),
    /// This side closed the connection.
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

/// The totals of an acquisition on one connection.
///
/// `received = certified + withheld`. With indices: `missed` samples came before this connection joined, and the
/// certified ones are `missed .. missed + certified`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConnectionTotals {
    /// Index of the first received sample.
    pub missed: u64,
    /// Samples that the server reports as sent, if it reported its end.
    pub sent_by_server: Option<u64>,
    /// Samples of whole frames.
    pub received: u64,
    /// Samples that can be trusted.
    pub certified: u64,
    /// Samples of the last frame, which cannot be trusted.
    pub withheld: u64,
    /// Samples announced by a frame that was cut off.
    pub cut: u64,
    /// The end of the acquisition.
    pub ending: Ending,
}

impl ConnectionTotals {
    /// True if the server's count equals the received samples. Without an end, the counts cannot be compared.
    pub fn agrees(&self) -> bool {
        self.sent_by_server.is_none_or(|sent| sent == self.received)
    }
}

impl SampleValidator {
    /// Returns a validator for the acquisition that begins with this header.
    pub fn new(header: &Header) -> Self {
        SampleValidator {
            process: header.process,
            sample_bytes: u64::from(header.sample_bytes.max(1)),
            missed: header.missed,
            received: 0,
            certified: 0,
            coming: None,
            held: 0,
        }
    }

    /// Begins a frame with this many bytes of payload. Returns the number of samples that this certifies: the next of
    /// all received ones.
    pub fn frame(&mut self, bytes: u64) -> u64 {
        debug_assert!(self.coming.is_none(), "a frame begins before the last one has ended");
        self.coming = Some(bytes / self.sample_bytes);
        self.certify()
    }

    /// Ends a frame whose payload is complete. Returns the number of samples that this certifies.
    pub fn frame_end(&mut self) -> u64 {
        let samples = self.coming.take().unwrap_or(0);
        self.received += samples;
        self.held += samples;
        match self.process {
            Process::Raw => 0,
            Process::Scaled => self.certify(),
        }
    }

    /// Returns the number of certified samples.
    pub fn certified(&self) -> u64 {
        self.certified
    }

    /// Returns the number of samples of whole frames that wait for certification.
    pub fn held(&self) -> u64 {
        self.held
    }

    /// Returns the index of the first sample after the certified ones.
    pub fn next_index(&self) -> u64 {
        self.missed + self.certified
    }

    /// Ends the acquisition. `certified` of the totals includes the samples that this certifies.
    pub fn end(mut self, sent_by_server: u64, reason: EndReason) -> ConnectionTotals {
        if reason.is_good() {
            self.certify();
        }
        self.tally(Some(sent_by_server), Ending::End(reason))
    }

    /// Ends the acquisition without an end from the server.
    pub fn lost(self, ending: Ending) -> ConnectionTotals {
        self.tally(None, ending)
    }

    fn certify(&mut self) -> u64 {
        let samples = std::mem::take(&mut self.held);
        self.certified += samples;
        samples
    }

    fn tally(self, sent_by_server: Option<u64>, ending: Ending) -> ConnectionTotals {
        assert_eq!(self.received, self.certified + self.held, "the books of a PandA balance");
        ConnectionTotals {
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
