//! A connection that ends when a stop is requested, or when the other end is silent for too long.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// Time between two looks at whether to stop.
const LOOK: Duration = Duration::from_millis(100);

/// A connection, and what ends it.
pub struct Wire<'a> {
    stream: &'a TcpStream,
    is_over: &'a dyn Fn() -> bool,
}

impl<'a> Wire<'a> {
    /// Uses a connection until `is_over`.
    pub fn new(stream: &'a TcpStream, is_over: &'a dyn Fn() -> bool) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(LOOK))?;
        stream.set_write_timeout(Some(LOOK))?;
        Ok(Self { stream, is_over })
    }

    /// Reads what is there, within this time; 0 at the end.
    pub fn read(&self, into: &mut [u8], patience: Duration) -> io::Result<usize> {
        self.attempt(patience, |mut stream| stream.read(into))
    }

    /// Writes all bytes. The other end must take some of them within this time, again and again.
    pub fn write_all(&self, mut bytes: &[u8], patience: Duration) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.attempt(patience, |mut stream| stream.write(bytes))? {
                0 => return Err(ErrorKind::WriteZero.into()),
                count => bytes = &bytes[count..],
            }
        }
        Ok(())
    }

    /// Fails if it is over.
    pub fn check(&self) -> io::Result<()> {
        match (self.is_over)() {
            true => Err(io::Error::new(ErrorKind::ConnectionAborted, "the transfer was ended")),
            false => Ok(()),
        }
    }

    fn attempt(
        &self,
        patience: Duration,
        mut work: impl FnMut(&TcpStream) -> io::Result<usize>,
    ) -> io::Result<usize> {
        let since = Instant::now();
        loop {
            self.check()?;
            match work(self.stream) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) =>
                {
                    if since.elapsed() >= patience {
                        let why = format!("silent for {} s", patience.as_secs());
                        return Err(io::Error::new(ErrorKind::TimedOut, why));
                    }
                }
                other => return other,
            }
        }
    }
}
