//! Decides which connections a server takes, so that no peer and no stranger keeps the others away.
//!
//! A stranger is a connection that has not said who it is. When there are too many, the oldest one makes room, of the
//! network with the most of them: whoever opens connections without end replaces his own. A peer needs a few round trips
//! to say who it is.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::channel::Closer;
use crate::identity::Fingerprint;

/// Connections of all peers together.
const MOST_CONNECTIONS: usize = 512;

/// Connections of one peer: three transfers with all the data connections that they may have.
const MOST_OF_PEER: usize = 128;

/// Connections that have not said who they are.
const MOST_STRANGERS: usize = 64;

/// The connections of a server.
#[derive(Debug, Default)]
pub(super) struct Admission {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    connections: usize,
    of_peer: HashMap<Fingerprint, usize>,
    next: u64,
    /// Network and connection of each stranger, the oldest first.
    strangers: BTreeMap<u64, (IpAddr, Closer)>,
}

/// A connection that counts until this is dropped.
#[derive(Debug)]
pub(super) struct Connection(Arc<Admission>);

/// A stranger, until this is dropped.
#[derive(Debug)]
pub(super) struct Stranger(Arc<Admission>, u64);

/// A connection of a known peer, until this is dropped.
#[derive(Debug)]
pub(super) struct OfPeer(Arc<Admission>, Fingerprint);

impl Admission {
    /// Takes a connection of a stranger, if there is room for it. Another stranger may be closed.
    pub fn admit(
        self: &Arc<Self>,
        from: SocketAddr,
        closer: Closer,
    ) -> Option<(Connection, Stranger)> {
        let mut inner = self.lock();
        if inner.connections >= MOST_CONNECTIONS {
            return None;
        }
        if inner.strangers.len() >= MOST_STRANGERS
            && let Some(oldest) = to_close(&inner.strangers, |(network, _)| *network)
            && let Some((_, closer)) = inner.strangers.remove(&oldest)
        {
            closer.close();
        }
        let number = inner.next;
        inner.next += 1;
        inner.connections += 1;
        inner.strangers.insert(number, (network(from.ip()), closer));
        Some((Connection(self.clone()), Stranger(self.clone(), number)))
    }

    /// Takes a connection of a peer that has said who it is, if it has not too many.
    pub fn admit_peer(self: &Arc<Self>, peer: Fingerprint) -> Option<OfPeer> {
        let mut inner = self.lock();
        let count = inner.of_peer.entry(peer).or_default();
        if *count >= MOST_OF_PEER {
            return None;
        }
        *count += 1;
        Some(OfPeer(self.clone(), peer))
    }

    /// True if there is no connection.
    pub fn is_empty(&self) -> bool {
        self.lock().connections == 0
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The oldest entry of the network that has the most; of networks with as many, the one with the oldest entry.
fn to_close<T>(strangers: &BTreeMap<u64, T>, network: impl Fn(&T) -> IpAddr) -> Option<u64> {
    let mut of_network: HashMap<IpAddr, (usize, u64)> = HashMap::new();
    for (number, stranger) in strangers {
        of_network.entry(network(stranger)).or_insert((0, *number)).0 += 1;
    }
    let worst = of_network.into_values().max_by_key(|(count, oldest)| (*count, u64::MAX - oldest));
    worst.map(|(_, oldest)| oldest)
}

/// The network that counts as one: whoever has an IPv6 address has 2⁶⁴ of them.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into()
        }
        address => address,
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.0.lock().connections -= 1;
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        self.0.lock().strangers.remove(&self.1);
    }
}

impl Drop for OfPeer {
    fn drop(&mut self) {
        let mut inner = self.0.lock();
        if let Some(count) = inner.of_peer.get_mut(&self.1) {
            *count -= 1;
            if *count == 0 {
                inner.of_peer.remove(&self.1);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::channel::tests::channels;

    fn from(network: u8) -> SocketAddr {
        ([192, 0, 2, network], 1000).into()
    }

    #[test]
    fn strangers_without_end_replace_their_own() {
        let admission = Arc::new(Admission::default());
        let (near, _far) = channels();
        let honest = admission.admit(from(1), near.closer()).unwrap();
        let mut held = Vec::new();
        for _ in 0..MOST_STRANGERS * 3 {
            held.push(admission.admit(from(2), near.closer()).unwrap());
        }
        let inner = admission.lock();
        assert_eq!(inner.strangers.len(), MOST_STRANGERS);
        assert!(inner.strangers.contains_key(&honest.1.1), "the other network keeps its place");
        drop(inner);
        drop((honest, held));
        assert!(admission.is_empty() && admission.lock().strangers.is_empty());
    }

    #[test]
    fn there_is_a_limit_on_all_connections_and_on_those_of_one_peer() {
        let admission = Arc::new(Admission::default());
        let (near, _far) = channels();
        let held: Vec<_> =
            (0..MOST_CONNECTIONS).map(|_| admission.admit(from(1), near.closer())).collect();
        assert!(held.iter().all(Option::is_some));
        assert!(admission.admit(from(2), near.closer()).is_none());
        drop(held);
        assert!(admission.admit(from(2), near.closer()).is_some());
        let peer = Fingerprint([1; 32]);
        let held: Vec<_> = (0..MOST_OF_PEER).map(|_| admission.admit_peer(peer)).collect();
        assert!(held.iter().all(Option::is_some) && admission.admit_peer(peer).is_none());
        assert!(admission.admit_peer(Fingerprint([2; 32])).is_some());
        drop(held);
        assert!(admission.admit_peer(peer).is_some() && admission.lock().of_peer.is_empty());
    }

    #[test]
    fn addresses_of_one_ipv6_network_count_as_one() {
        let one = network("2001:db8::1".parse().unwrap());
        assert_eq!(one, network("2001:db8::ffff:1".parse().unwrap()));
        assert_ne!(one, network("2001:db8:0:1::1".parse().unwrap()));
        assert_eq!(
            network("::ffff:192.0.2.1".parse().unwrap()),
            network("192.0.2.1".parse().unwrap())
        );
    }
}
