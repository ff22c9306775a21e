//! The data connections of a transfer that are open now, so that another thread can close them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::channel::Closer;

/// The open connections, oldest first.
#[derive(Clone, Debug, Default)]
pub(crate) struct OpenConnections {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Debug, Default)]
struct Inner {
    next: u64,
    closers: BTreeMap<u64, Closer>,
}

impl OpenConnections {
    /// Adds a connection, until the result is dropped.
    pub fn add(&self, closer: Closer) -> OpenConnection {
        let mut inner = self.lock();
        let number = inner.next;
        inner.next += 1;
        inner.closers.insert(number, closer);
        OpenConnection { of: self.clone(), number }
    }

    /// Closes all connections: threads that wait for a dead peer go on.
    pub fn close(&self) {
        self.lock().closers.values().for_each(Closer::close);
    }

    /// Closes the oldest connections if there are more than this many: a peer that replaces them holds them for dead.
    pub fn close_beyond(&self, most: usize) {
        let inner = self.lock();
        let excess = inner.closers.len().saturating_sub(most);
        inner.closers.values().take(excess).for_each(Closer::close);
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An open connection. A [`Closer`] holds the socket open, so dropping this closes the socket and forgets the closer.
#[derive(Debug)]
pub(crate) struct OpenConnection {
    of: OpenConnections,
    number: u64,
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.of.lock().closers.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::channel::tests::channels;

    #[test]
    fn only_open_connections_hold_a_descriptor() {
        let open = OpenConnections::default();
        let (near, _far) = channels();
        for _ in 0..100 {
            drop(open.add(near.closer()));
        }
        assert!(open.lock().closers.is_empty());
    }

    #[test]
    fn the_oldest_connections_beyond_the_limit_are_closed() {
        let open = OpenConnections::default();
        let mut pairs: Vec<_> = (0..3).map(|_| channels()).collect();
        let _held: Vec<_> = pairs.iter().map(|(near, _)| open.add(near.closer())).collect();
        open.close_beyond(2);
        let is_closed =
            |far: &mut crate::channel::Channel| far.receive(Duration::from_millis(200)).is_err();
        let closed: Vec<bool> = pairs.iter_mut().map(|(_, far)| is_closed(far)).collect();
        assert_eq!(closed, [true, false, false]);
    }
}
