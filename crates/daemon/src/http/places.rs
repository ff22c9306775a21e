//! Places for answers that go on: so many in all, and no client takes more than half of them from the others.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use crate::auth::Identity;

/// The places. Clones are handles of the same.
#[derive(Clone, Debug)]
pub(super) struct Places {
    most: usize,
    taken: Arc<Mutex<BTreeMap<Arc<str>, usize>>>,
}

/// A place, which is free again when it is dropped.
#[derive(Debug)]
pub(super) struct Place {
    places: Places,
    client: Arc<str>,
}

impl Places {
    /// None is taken.
    pub(super) fn new(most: usize) -> Self {
        Self { most, taken: Arc::default() }
    }

    /// Takes a place for a client. `None` if all are taken, or this client has half of them.
    pub(super) fn take(&self, client: &Identity) -> Option<Place> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let own = taken.get(&client.name).copied().unwrap_or(0);
        if own >= self.most.div_ceil(2) || taken.values().sum::<usize>() >= self.most {
            return None;
        }
        taken.insert(client.name.clone(), own + 1);
        Some(Place { places: self.clone(), client: client.name.clone() })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.taken.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(own) = taken.get_mut(&self.client) {
            *own -= 1;
        }
        taken.retain(|_, own| *own > 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::Role;

    #[test]
    fn one_client_takes_half_of_the_places_and_all_together_no_more_than_there_are() {
        let places = Places::new(4);
        let client = |name: &str| Identity { name: name.into(), role: Role::Viewer };
        let own: Vec<Place> = (0..2).filter_map(|_| places.take(&client("a"))).collect();
        assert!(own.len() == 2 && places.take(&client("a")).is_none());
        let others = [places.take(&client("b")).unwrap(), places.take(&client("c")).unwrap()];
        assert!(places.take(&client("d")).is_none());
        drop(own);
        assert!(places.take(&client("d")).is_some());
        drop(others);
        assert!(places.taken.lock().unwrap().is_empty());
    }
}
