//! Computes the new number of each chunk file, without access to files.
//!
//! Chunks are put in the order of their first blocks and take the lowest free numbers. A file that cannot be renamed
//! keeps its number, and so does one that may be on an absent member: the chunks before it in the stream must get
//! numbers below it, or nothing is renamed at all.

use std::collections::BTreeSet;

/// A chunk of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    /// The number in the index.
    pub chunk: u32,
    /// The number of its file.
    pub file: u32,
    /// Sequence of its first block, if any record has it.
    pub first: Option<u64>,
    /// True if its file can be renamed.
    pub free: bool,
}

/// The result of the computation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Order {
    /// The order is right already.
    Right,
    /// Chunks get files of these numbers.
    New(Vec<(u32, u32)>),
    /// The order is wrong, and files that cannot be renamed are in the way.
    Stuck,
}

/// Returns true if files in the order of their numbers are in the order of the stream.
pub fn is_right(known: &[Known]) -> bool {
    let mut by_file: Vec<(u32, u64)> =
        known.iter().filter_map(|it| Some((it.file, it.first?))).collect();
    by_file.sort_unstable();
    by_file.is_sorted_by_key(|(_, first)| *first)
}

/// Computes a number for every chunk. `all_seen` is false if more chunks may exist on absent members.
pub fn order(known: &[Known], all_seen: bool) -> Order {
    if is_right(known) {
        return Order::Right;
    }
    let taken: BTreeSet<u32> = known.iter().map(|it| it.file).collect();
    let last = taken.last().copied().unwrap_or(0);
    let unseen = (0..last).filter(|number| !all_seen && !taken.contains(number));
    let unknown = known.iter().filter(|it| it.first.is_none()).map(|it| it.file);
    let mut places: Vec<Place> = unseen.chain(unknown).map(|file| behind(known, file)).collect();
    places.extend(known.iter().filter_map(|it| {
        let kind = if it.free { Kind::Free(it.chunk) } else { Kind::Fixed(it.chunk) };
        Some(Place { after: Some(it.first?), file: it.file, kind })
    }));
    places.sort_by_key(|place| (place.after, place.kind == Kind::Unknown, place.file));
    deal(&places, if all_seen { u32::MAX } else { last })
}

/// A number in the order of the stream.
#[derive(Clone, Copy, Debug)]
struct Place {
    /// The first block, or the block that the chunk follows.
    after: Option<u64>,
    file: u32,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Free(u32),
    Fixed(u32),
    Unknown,
}

/// Numbers were assigned in the order of the stream, so a chunk without known blocks follows those with lower numbers.
fn behind(known: &[Known], file: u32) -> Place {
    let below = known.iter().filter(|it| it.file < file);
    Place { after: below.filter_map(|it| it.first).max(), file, kind: Kind::Unknown }
}

/// Assigns the lowest free numbers in ascending order.
fn deal(places: &[Place], last: u32) -> Order {
    let kept: BTreeSet<u32> = places
        .iter()
        .filter(|place| !matches!(place.kind, Kind::Free(_)))
        .map(|place| place.file)
        .collect();
    let mut pairs = Vec::new();
    let mut next = 0;
    for place in places {
        match place.kind {
            Kind::Free(chunk) => {
                while kept.contains(&next) {
                    next += 1;
                }
                if next > last {
                    return Order::Stuck;
                }
                pairs.push((chunk, next));
                next += 1;
            }
            Kind::Fixed(_) | Kind::Unknown if place.file < next => return Order::Stuck,
            Kind::Fixed(chunk) => {
                pairs.push((chunk, place.file));
                next = place.file + 1;
            }
            Kind::Unknown => next = place.file + 1,
        }
    }
    Order::New(pairs)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn known(list: &[(u32, u64)]) -> Vec<Known> {
        let of = |&(file, first)| Known { chunk: file, file, first: Some(first), free: true };
        list.iter().map(of).collect()
    }

    /// Chunk 1 was cut; its rest is chunk 5.
    const CUT: [(u32, u64); 6] = [(0, 0), (1, 3), (2, 6), (3, 9), (4, 12), (5, 4)];

    #[test]
    fn the_rest_of_a_cut_chunk_takes_the_number_behind_it() {
        assert_eq!(order(&known(&CUT[..5]), true), Order::Right);
        let new = Order::New(vec![(0, 0), (1, 1), (5, 2), (2, 3), (3, 4), (4, 5)]);
        assert_eq!(order(&known(&CUT), true), new);
    }

    #[test]
    fn files_that_cannot_be_renamed_keep_their_numbers() {
        let mut all = known(&CUT);
        all[1].free = false;
        let new = Order::New(vec![(0, 0), (1, 1), (5, 2), (2, 3), (3, 4), (4, 5)]);
        assert_eq!(order(&all, true), new, "the member that died has nothing behind its cut chunk");
        all[3].free = false;
        assert_eq!(
            order(&all, true),
            Order::Stuck,
            "there is one number between 1 and 3, for two chunks"
        );
    }

    #[test]
    fn numbers_on_a_member_that_is_not_here_are_given_to_nobody() {
        let mut all = known(&CUT);
        all.retain(|it| it.chunk != 1);
        let new = Order::New(vec![(0, 0), (5, 2), (2, 3), (3, 4), (4, 5)]);
        assert_eq!(order(&all, false), new);
        let closed = Order::New(vec![(0, 0), (5, 1), (2, 2), (3, 3), (4, 4)]);
        assert_eq!(order(&all, true), closed, "what nobody can hold is no hole");
        all.retain(|it| it.chunk != 3);
        assert_eq!(order(&all, false), Order::Stuck);
    }

    #[test]
    fn a_file_of_which_no_record_tells_stays() {
        let mut all = known(&CUT);
        all[1].first = None;
        let new = Order::New(vec![(0, 0), (5, 2), (2, 3), (3, 4), (4, 5)]);
        assert_eq!(order(&all, true), new);
    }

    proptest! {
        #[test]
        fn no_number_is_given_twice_and_the_order_is_that_of_the_stream(
            files in Just((0..12u32).collect::<Vec<_>>()).prop_shuffle(),
            fixed in prop::collection::vec(0..8u32, 12),
            absent in prop::collection::btree_set(0..12usize, 0..3),
            all_seen: bool,
        ) {
            let all: Vec<Known> = (0..12usize)
                .filter(|at| !absent.contains(at))
                .map(|at| Known {
                    chunk: at as u32,
                    file: files[at],
                    first: (fixed[at] != 1).then_some(files[11 - at].into()),
                    free: fixed[at] != 0,
                })
                .collect();
            let Order::New(pairs) = order(&all, all_seen) else { return Ok(()) };
            let given: BTreeSet<u32> = pairs.iter().map(|(_, file)| *file).collect();
            prop_assert_eq!(given.len(), pairs.len());
            let of = |chunk: u32| *all.iter().find(|it| it.chunk == chunk).unwrap();
            prop_assert!(pairs.is_sorted_by_key(|(chunk, _)| of(*chunk).first));
            prop_assert!(pairs.is_sorted_by_key(|(_, file)| *file));
            prop_assert_eq!(pairs.len(), all.iter().filter(|it| it.first.is_some()).count());
            for (chunk, file) in &pairs {
                prop_assert!(of(*chunk).free || of(*chunk).file == *file);
            }
            prop_assert!(all.iter().all(|it| it.first.is_some() || !given.contains(&it.file)));
            if !all_seen {
                let held = absent.iter().map(|at| files[*at]);
                prop_assert!(held.into_iter().all(|file| !given.contains(&file)));
            }
        }
    }
}
