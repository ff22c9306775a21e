//! The interface through which the capture thread uses a PandA.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use fullbore_core::panda::PandaSource;

use super::described::Described;
use crate::{ControlPort, DataStream, Error, Step, Timeouts};

/// Timeouts for a connection, an answer, and one read of the data port.
pub const PATIENCE: Timeouts = Timeouts {
    connect: Duration::from_secs(5),
    answer: Duration::from_secs(5),
    quiet: Duration::from_millis(20),
};

/// The longest wait until a PandA can be armed: its slowest reader may have a ring to drain.
const DRAINED: Duration = Duration::from_secs(10);

/// The longest time that it may refuse ARM after the end of the data, when nothing is left to drain.
const LET_GO: Duration = Duration::from_secs(1);

/// The longest time after the end of the data until it must report the end of the acquisition.
const OVER: Duration = Duration::from_millis(500);

/// Time before a control port that did not answer is tried again.
const ASK_AGAIN: Duration = Duration::from_secs(10);

/// The state of the latest acquisition, from the PandA's own counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Captured {
    /// The acquisition is running.
    Busy,
    /// The acquisition has ended with this number of samples.
    Over(u64),
    /// The PandA did not answer.
    Unknown,
}

/// One connection to the data port.
pub trait Data {
    /// Bytes of payload that are expected next; 0 while text is expected.
    fn wants_payload(&self) -> u64;

    /// Waits for the next event. Payload is written to the beginning of `room`.
    fn next(&mut self, room: &mut [u8]) -> Result<Step, Error>;
}

/// A PandA.
pub trait Device {
    /// Its data port.
    type Data: Data;

    /// Makes a connection to the data port.
    fn connect(&mut self) -> Result<Self::Data, Error>;

    /// Arms it.
    fn arm(&mut self) -> Result<(), Error>;

    /// Ends the acquisition.
    fn disarm(&mut self) -> Result<(), Error>;

    /// The state of the latest acquisition. Waits for one that is about to end.
    fn captured(&mut self) -> Captured;

    /// The same, without waiting.
    fn captured_by_now(&mut self) -> Captured {
        self.captured()
    }

    /// True if the PandA answers.
    fn is_alive(&mut self) -> bool;

    /// Starts a request for the settings and does not wait for the answer.
    fn describe(&mut self) -> Described {
        Described::never()
    }
}

impl Data for DataStream {
    fn wants_payload(&self) -> u64 {
        DataStream::wants_payload(self)
    }

    fn next(&mut self, room: &mut [u8]) -> Result<Step, Error> {
        DataStream::next(self, room)
    }
}

/// A PandA over TCP. The control port is connected at the first command, and connected again after a command without an
/// answer.
#[derive(Debug)]
pub struct Panda {
    source: PandaSource,
    timeouts: Timeouts,
    control: Option<ControlPort>,
    /// A data connection that was opened in advance.
    reached: Option<DataStream>,
    failed: Option<Instant>,
}

impl Panda {
    /// The PandA at `source`.
    pub fn new(source: PandaSource, timeouts: Timeouts) -> Self {
        Panda { source, timeouts, control: None, reached: None, failed: None }
    }

    /// Opens the first data connection and, with `arm`, checks that the PandA takes commands. A missing PandA is thus
    /// reported before the recording begins.
    pub fn reach(&mut self, arm: bool) -> Result<(), Error> {
        let mut data = DataStream::connect(&self.source, self.timeouts)?;
        data.wait_until_ready(self.timeouts.answer)?;
        if arm {
            self.asking(ControlPort::status)?;
        }
        self.reached = Some(data);
        Ok(())
    }

    /// The address of the data connection that was opened in advance.
    pub fn reached_at(&self) -> Option<SocketAddr> {
        self.reached.as_ref()?.peer()
    }

    fn asking<T>(
        &mut self,
        ask: impl Fn(&mut ControlPort) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let mut control = match self.control.take() {
            Some(control) => control,
            None => ControlPort::connect(&self.source, self.timeouts)
                .inspect_err(|_| self.failed = Some(Instant::now()))?,
        };
        let answer = ask(&mut control);
        // After any other result, request and answer no longer match on this connection.
        if matches!(answer, Ok(_) | Err(Error::Refused { .. })) {
            self.control = Some(control);
            self.failed = None;
        }
        answer
    }

    /// The state of the latest acquisition; waits at most `timeouts` for its end.
    fn captured_within(&mut self, timeouts: Duration) -> Captured {
        if self.is_left_alone() {
            return Captured::Unknown;
        }
        match self.asking(|control| control.captured_at_end(timeouts)) {
            Ok(Some(samples)) => Captured::Over(samples),
            Ok(None) => Captured::Busy,
            Err(_) => Captured::Unknown,
        }
    }

    /// True if the control port failed to answer a moment ago.
    fn is_left_alone(&self) -> bool {
        self.failed.is_some_and(|failed| failed.elapsed() < ASK_AGAIN)
    }
}

impl Device for Panda {
    type Data = DataStream;

    fn connect(&mut self) -> Result<DataStream, Error> {
        match self.reached.take() {
            Some(data) => Ok(data),
            None => DataStream::connect(&self.source, self.timeouts),
        }
    }

    fn arm(&mut self) -> Result<(), Error> {
        let begun = Instant::now();
        loop {
            match self.asking(|control| control.arm_when_drained(DRAINED)) {
                // The server releases its last reader a moment after it has sent END, and does not say when.
                Err(Error::Refused { .. }) if begun.elapsed() < LET_GO => {
                    std::thread::sleep(LET_GO / 20);
                }
                other => return other,
            }
        }
    }

    fn disarm(&mut self) -> Result<(), Error> {
        self.asking(ControlPort::disarm)
    }

    fn captured(&mut self) -> Captured {
        self.captured_within(OVER)
    }

    fn captured_by_now(&mut self) -> Captured {
        self.captured_within(Duration::ZERO)
    }

    fn is_alive(&mut self) -> bool {
        // The cached connection may have died when the PandA restarted.
        self.asking(ControlPort::status).or_else(|_| self.asking(ControlPort::status)).is_ok()
    }

    fn describe(&mut self) -> Described {
        Described::ask(self.source.clone(), self.timeouts)
    }
}
