//! A PandA as the capture thread needs it.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use fullbore_core::format::panda::PandaSource;

use super::described::Described;
use crate::panda::{Control, DataStream, Error, Patience, Step};

/// How long a PandA may take to be ready for arming: its slowest reader has a ring to drain.
const DRAINED: Duration = Duration::from_secs(10);

/// How long it may refuse to be armed after the end of the data, though nothing is drained any more.
const LET_GO: Duration = Duration::from_secs(1);

/// How long after the end of the data it may say that the acquisition is over.
const OVER: Duration = Duration::from_millis(500);

/// A control port that did not answer is left alone for so long.
const ASK_AGAIN: Duration = Duration::from_secs(10);

/// What became of the latest acquisition, by the PandA's own count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Captured {
    /// It goes on.
    Busy,
    /// It is over, and so many samples were taken.
    Over(u64),
    /// It could not be asked.
    Unknown,
}

/// One connection to the data port.
pub trait Data {
    /// Payload that is wanted next; 0 while text is wanted.
    fn wants_payload(&self) -> u64;

    /// The next thing that happens; payload goes to the beginning of `room`.
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

    /// What became of the latest acquisition; one that is about to end is waited for.
    fn captured(&mut self) -> Captured;

    /// The same, without waiting.
    fn captured_by_now(&mut self) -> Captured {
        self.captured()
    }

    /// Whether it answers.
    fn is_alive(&mut self) -> bool;

    /// What it is set to; asks, and does not wait for the answer.
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

/// A PandA over TCP. Its control port is connected to when something is first asked, and anew after
/// an answer that did not come.
#[derive(Debug)]
pub struct Panda {
    source: PandaSource,
    patience: Patience,
    control: Option<Control>,
    /// A data connection that was made ahead of its time.
    reached: Option<DataStream>,
    failed: Option<Instant>,
}

impl Panda {
    /// The one that `source` speaks of.
    pub fn new(source: PandaSource, patience: Patience) -> Self {
        Panda { source, patience, control: None, reached: None, failed: None }
    }

    /// Makes the first data connection, and with `arm` looks whether commands are taken: a PandA that is
    /// not there is told before anything is begun.
    pub fn reach(&mut self, arm: bool) -> Result<(), Error> {
        let mut data = DataStream::connect(&self.source, self.patience)?;
        data.wait_until_ready(self.patience.answer)?;
        if arm {
            self.asking(Control::status)?;
        }
        self.reached = Some(data);
        Ok(())
    }

    /// The address of the data connection that was made ahead of its time.
    pub fn reached_at(&self) -> Option<SocketAddr> {
        self.reached.as_ref()?.peer()
    }

    fn asking<T>(&mut self, ask: impl Fn(&mut Control) -> Result<T, Error>) -> Result<T, Error> {
        let mut control = match self.control.take() {
            Some(control) => control,
            None => Control::connect(&self.source, self.patience)
                .inspect_err(|_| self.failed = Some(Instant::now()))?,
        };
        let answer = ask(&mut control);
        // After anything but an answer the connection is out of step.
        if matches!(answer, Ok(_) | Err(Error::Refused { .. })) {
            self.control = Some(control);
            self.failed = None;
        }
        answer
    }

    /// What became of the latest acquisition, which is given so long to end.
    fn captured_within(&mut self, patience: Duration) -> Captured {
        if self.is_left_alone() {
            return Captured::Unknown;
        }
        match self.asking(|control| control.captured_at_end(patience)) {
            Ok(Some(samples)) => Captured::Over(samples),
            Ok(None) => Captured::Busy,
            Err(_) => Captured::Unknown,
        }
    }

    /// Whether the control port was found dead a moment ago.
    fn is_left_alone(&self) -> bool {
        self.failed.is_some_and(|failed| failed.elapsed() < ASK_AGAIN)
    }
}

impl Device for Panda {
    type Data = DataStream;

    fn connect(&mut self) -> Result<DataStream, Error> {
        match self.reached.take() {
            Some(data) => Ok(data),
            None => DataStream::connect(&self.source, self.patience),
        }
    }

    fn arm(&mut self) -> Result<(), Error> {
        let begun = Instant::now();
        loop {
            match self.asking(|control| control.arm_when_drained(DRAINED)) {
                // The server lets its last reader go a moment after it has said END to it.
                Err(Error::Refused { .. }) if begun.elapsed() < LET_GO => {
                    std::thread::sleep(LET_GO / 20);
                }
                other => return other,
            }
        }
    }

    fn disarm(&mut self) -> Result<(), Error> {
        self.asking(Control::disarm)
    }

    fn captured(&mut self) -> Captured {
        self.captured_within(OVER)
    }

    fn captured_by_now(&mut self) -> Captured {
        self.captured_within(Duration::ZERO)
    }

    fn is_alive(&mut self) -> bool {
        // The connection that is kept may have died with the PandA's last restart.
        self.asking(Control::status).or_else(|_| self.asking(Control::status)).is_ok()
    }

    fn describe(&mut self) -> Described {
        Described::ask(self.source.clone(), self.patience)
    }
}
