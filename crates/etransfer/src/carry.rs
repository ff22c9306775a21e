//! The bytes of a file over a data connection, in pieces that the governor grants.

use std::io;
use std::time::Duration;

use fullbore_transfer::files::ServedFile;
use fullbore_transfer::governor::Governor;

use crate::error::EtransferError;
use crate::part::Part;
use crate::wire::Wire;

/// Bytes that are read and written at a time.
const PIECE: usize = 1 << 20;

/// Time between two looks at whether to stop, while nothing is granted.
const LOOK: Duration = Duration::from_millis(100);

/// Receives the bytes that were carried since the last call.
pub type Tell<'a> = &'a mut dyn FnMut(u64);

/// A data connection.
pub struct Carrier<'a> {
    /// The connection.
    pub wire: Wire<'a>,
    /// Says how much may be carried.
    pub governor: &'a Governor,
    /// The other end, for messages.
    pub peer: &'a str,
    /// The time for which the other end may pause.
    pub patience: Duration,
}

impl Carrier<'_> {
    fn lost(&self, source: io::Error) -> EtransferError {
        EtransferError::Connection { peer: self.peer.to_owned(), source }
    }

    /// Sends a few bytes.
    pub fn say(&self, bytes: &[u8]) -> Result<(), EtransferError> {
        self.wire.write_all(bytes, self.patience).map_err(|source| self.lost(source))
    }

    /// Waits until some of these bytes may be carried.
    fn grant(&self, wanted: usize) -> Result<usize, EtransferError> {
        loop {
            self.wire.check().map_err(|source| self.lost(source))?;
            match self.governor.grant(wanted as u64, LOOK) {
                0 => {}
                granted => return Ok(granted as usize),
            }
        }
    }

    /// Sends bytes of a file, and waits until the other end confirms that it has them.
    pub fn give(
        &self,
        file: &mut ServedFile,
        mut at: u64,
        bytes: u64,
        tell: Tell<'_>,
    ) -> Result<(), EtransferError> {
        let end = at + bytes;
        let mut memory = vec![0; PIECE.min(bytes as usize)];
        while at < end {
            let count = self.grant(memory.len().min((end - at) as usize))?;
            file.read_at(at, &mut memory[..count])?;
            self.say(&memory[..count])?;
            at += count as u64;
            tell(count as u64);
        }
        match self.wire.read(&mut [0], self.patience).map_err(|source| self.lost(source))? {
            0 => {
                let (peer, name) = (self.peer.to_owned(), file.name().to_owned());
                Err(EtransferError::Unconfirmed { peer, name })
            }
            _ => Ok(()),
        }
    }

    /// Appends this many bytes to a file. The first of them, and others behind them, may already be in `pending`.
    pub fn take(
        &self,
        part: &mut Part,
        pending: &mut Vec<u8>,
        bytes: u64,
        tell: Tell<'_>,
    ) -> Result<(), EtransferError> {
        part.check_room(bytes)?;
        let here = pending.len().min(usize::try_from(bytes).unwrap_or(usize::MAX));
        part.append(&pending[..here])?;
        pending.drain(..here);
        let mut left = bytes - here as u64;
        let mut memory = vec![0; PIECE.min(left as usize)];
        let mut credit = 0;
        while left > 0 {
            if credit == 0 {
                credit = self.grant(memory.len().min(left as usize))?;
            }
            let into = &mut memory[..credit];
            let count = self.wire.read(into, self.patience).map_err(|source| self.lost(source))?;
            if count == 0 {
                return Err(self.lost(io::ErrorKind::UnexpectedEof.into()));
            }
            part.append(&memory[..count])?;
            credit -= count;
            left -= count as u64;
            tell(count as u64);
        }
        Ok(())
    }
}
