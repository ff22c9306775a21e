//! The connections that are open, and which one goes when there are too many. Pure: sockets are elsewhere.
//!
//! A connection *serves* while a request of it is being answered, and *waits* otherwise: before its first request, or
//! between two. A new connection takes the place of the one that has waited longest, of the same address if that one has
//! too many. So clients that connect and send nothing push each other out, and never a client that is being answered.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};

/// Limits of connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The most connections at once.
    pub total: usize,
    /// The most of one origin.
    pub each: usize,
}

/// Who is counted together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Origin {
    /// An address. Of IPv6 the network of 64 bits, because a host has all of its addresses.
    Address(IpAddr),
    /// A user of this host, over the Unix socket.
    User(u32),
}

impl Origin {
    /// That of an address.
    pub fn of(address: IpAddr) -> Self {
        Self::Address(match address.to_canonical() {
            IpAddr::V4(address) => IpAddr::V4(address),
            IpAddr::V6(address) if address.is_loopback() => IpAddr::V6(address),
            IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & (!0 << 64))),
        })
    }
}

/// The open connections, each with what closes it.
#[derive(Debug)]
pub struct Table<T> {
    limits: Limits,
    /// Counts events, so that the one who waits longest is known.
    now: u64,
    open: BTreeMap<u64, Open<T>>,
}

#[derive(Debug)]
struct Open<T> {
    origin: Origin,
    /// The event since which it waits; none while it serves.
    waits: Option<u64>,
    closer: T,
}

/// A new connection has a place.
#[derive(Debug, PartialEq, Eq)]
pub struct Admitted<T> {
    /// Its number.
    pub id: u64,
    /// What closes the connection whose place it takes.
    pub instead_of: Option<T>,
}

impl<T> Table<T> {
    /// No connection is open.
    pub fn new(limits: Limits) -> Self {
        Self { limits, now: 0, open: BTreeMap::new() }
    }

    /// Sets other limits. Open connections stay.
    pub fn limit(&mut self, limits: Limits) {
        self.limits = limits;
    }

    /// Gives a new connection a place. `None` if all places serve.
    pub fn admit(&mut self, origin: Origin, closer: T) -> Option<Admitted<T>> {
        let of_origin = self.open.values().filter(|it| it.origin == origin).count();
        let victim = match (of_origin >= self.limits.each, self.open.len() >= self.limits.total) {
            (false, false) => None,
            (true, _) => Some(self.longest_waiting(|it| it.origin == origin)?),
            (false, true) => Some(self.longest_waiting(|_| true)?),
        };
        let instead_of = victim.and_then(|id| self.open.remove(&id)).map(|it| it.closer);
        self.now += 1;
        let id = self.now;
        self.open.insert(id, Open { origin, waits: Some(id), closer });
        Some(Admitted { id, instead_of })
    }

    fn longest_waiting(&self, wanted: impl Fn(&Open<T>) -> bool) -> Option<u64> {
        let waiting = self.open.iter().filter(|(_, it)| wanted(it));
        let waiting = waiting.filter_map(|(id, it)| Some((it.waits?, *id)));
        waiting.min().map(|(_, id)| id)
    }

    /// A request of the connection is being answered.
    pub fn serves(&mut self, id: u64) {
        if let Some(open) = self.open.get_mut(&id) {
            open.waits = None;
        }
    }

    /// Its request is answered.
    pub fn waits(&mut self, id: u64) {
        self.now += 1;
        if let Some(open) = self.open.get_mut(&id) {
            open.waits = Some(self.now);
        }
    }

    /// It is closed. A connection that was pushed out is closed already.
    pub fn closed(&mut self, id: u64) {
        self.open.remove(&id);
    }

    /// The number of open connections.
    pub fn len(&self) -> usize {
        self.open.len()
    }

    /// True if none is open.
    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    const LIMITS: Limits = Limits { total: 6, each: 4 };

    fn origin(number: u8) -> Origin {
        Origin::of(IpAddr::from([192, 0, 2, number]))
    }

    #[derive(Clone, Debug)]
    enum Step {
        Connect(u8),
        Serve(usize),
        Wait(usize),
        Close(usize),
    }

    fn any_step() -> impl Strategy<Value = Step> {
        prop_oneof![
            3 => (0..4_u8).prop_map(Step::Connect),
            1 => (0..20_usize).prop_map(Step::Serve),
            1 => (0..20_usize).prop_map(Step::Wait),
            1 => (0..20_usize).prop_map(Step::Close),
        ]
    }

    proptest! {
        #[test]
        fn limits_hold_and_no_serving_connection_is_closed(
            steps in prop::collection::vec(any_step(), 0..200)
        ) {
            let mut table = Table::new(LIMITS);
            // Each closer is a number of ours; what serves is tracked apart from the table.
            let mut open: Vec<(u64, u64, u8)> = Vec::new();
            let mut serving = BTreeSet::new();
            for (number, step) in steps.into_iter().enumerate() {
                let closer = number as u64;
                let at = |index: usize| open.get(index % open.len().max(1)).map(|it| it.0);
                match step {
                    Step::Connect(from) => match table.admit(origin(from), closer) {
                        Some(Admitted { id, instead_of }) => {
                            if let Some(victim) = instead_of {
                                let place = open.iter().position(|it| it.1 == victim).unwrap();
                                prop_assert!(!serving.contains(&open.remove(place).0));
                            }
                            open.push((id, closer, from));
                        }
                        None => {
                            let own = open.iter().filter(|it| it.2 == from);
                            let own: Vec<_> = own.map(|it| it.0).collect();
                            let full_of_own = own.len() >= LIMITS.each
                                && own.iter().all(|id| serving.contains(id));
                            let full = open.len() >= LIMITS.total
                                && open.iter().all(|it| serving.contains(&it.0));
                            prop_assert!(full_of_own || full);
                        }
                    },
                    Step::Serve(index) => {
                        at(index).into_iter().for_each(|id| { table.serves(id); serving.insert(id); });
                    }
                    Step::Wait(index) => {
                        at(index).into_iter().for_each(|id| { table.waits(id); serving.remove(&id); });
                    }
                    Step::Close(index) => {
                        if let Some(id) = at(index) {
                            table.closed(id);
                            serving.remove(&id);
                            open.retain(|it| it.0 != id);
                        }
                    }
                }
                prop_assert_eq!(table.len(), open.len());
                prop_assert!(open.len() <= LIMITS.total);
                for from in 0..4 {
                    prop_assert!(open.iter().filter(|it| it.2 == from).count() <= LIMITS.each);
                }
            }
        }
    }

    #[test]
    fn the_connection_that_waits_longest_goes() {
        let mut table = Table::new(Limits { total: 3, each: 3 });
        let ids: Vec<u64> =
            "abc".chars().map(|it| table.admit(origin(1), it).unwrap().id).collect();
        table.serves(ids[0]);
        table.waits(ids[0]);
        assert_eq!(table.admit(origin(2), 'd').unwrap().instead_of, Some('b'));
        // The one that was pushed out is closed later, which changes nothing.
        table.closed(ids[1]);
        assert_eq!(table.len(), 3);
        table.serves(ids[0]);
        table.serves(ids[2]);
        assert_eq!(table.admit(origin(1), 'e').unwrap().instead_of, Some('d'));
    }

    #[test]
    fn addresses_of_one_host_count_together() {
        let of = |text: &str| Origin::of(text.parse().unwrap());
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("::ffff:192.0.2.1"), of("192.0.2.1"));
        assert_ne!(of("192.0.2.1"), of("192.0.2.2"));
        assert_eq!(of("::1"), Origin::Address("::1".parse().unwrap()));
    }
}
