//! Stripe placement: chooses the chunks of the next stripe and the members that take its parity.
//!
//! No two chunks of a stripe, data or parity, are on one member: if they were, the loss of that member would lose two
//! of them.

use std::collections::BTreeMap;

use fullbore_core::redundancy::Scheme;

/// The chunks of this many stripes may wait for a full stripe; beyond that a narrower one is made.
const PATIENCE: usize = 2;

/// Returns the positions of the waiting chunks that make the next stripe, oldest first. `waiting` has the member of
/// each chunk, out of `members` that take data. `None` if it is better to wait; with `last`, the recording is over and
/// nothing waits.
pub fn stripe(waiting: &[usize], scheme: Scheme, members: usize, last: bool) -> Option<Vec<usize>> {
    let widest = scheme.widest(members);
    let mut of_member: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for (place, member) in waiting.iter().enumerate() {
        of_member.entry(*member).or_default().push(place);
    }
    let mut queues: Vec<Vec<usize>> = of_member.into_values().collect();
    // A member with more chunks than others gives one to every stripe.
    queues.sort_by_key(|queue| (std::cmp::Reverse(queue.len()), queue[0]));
    queues.truncate(widest);
    let full = queues.len() == widest;
    let long = waiting.len() > PATIENCE * usize::from(scheme.data);
    let due = full || long || last;
    let mut chosen: Vec<usize> = queues.iter().map(|queue| queue[0]).collect();
    chosen.sort_unstable();
    (due && !chosen.is_empty()).then_some(chosen)
}

/// Returns the members that take the parity of a stripe: those that hold none of its chunks, the one with the least
/// parity first.
pub fn targets(holding: &[usize], taken: &[(usize, u64)], count: usize) -> Vec<usize> {
    let mut free: Vec<&(usize, u64)> =
        taken.iter().filter(|(member, _)| !holding.contains(member)).collect();
    free.sort_by_key(|(member, bytes)| (*bytes, *member));
    free.into_iter().take(count).map(|(member, _)| *member).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn whatever_order_chunks_come_in_each_ends_in_one_stripe_over_distinct_members(
            data in 1..5u16,
            parity in 1..3u16,
            spare in 0..3usize,
            chunks in prop::collection::vec((any::<prop::sample::Index>(), any::<bool>()), 0..60),
        ) {
            let scheme = Scheme { data, parity };
            let members = scheme.members() + spare;
            let mut waiting: Vec<(usize, usize)> = Vec::new();
            let mut taken: Vec<(usize, u64)> = (0..members).map(|member| (member, 0)).collect();
            let mut seen = vec![0; chunks.len()];
            let mut compose = |waiting: &mut Vec<(usize, usize)>, last| -> Result<(), TestCaseError> {
                loop {
                    let of: Vec<usize> = waiting.iter().map(|(_, member)| *member).collect();
                    let Some(places) = stripe(&of, scheme, members, last) else { return Ok(()) };
                    prop_assert!(places.len() <= usize::from(data) && places.is_sorted());
                    let mut holding: Vec<usize> = places.iter().map(|place| of[*place]).collect();
                    let parity_on = targets(&holding, &taken, usize::from(parity));
                    prop_assert_eq!(parity_on.len(), usize::from(parity));
                    parity_on.iter().for_each(|member| taken[*member].1 += 1);
                    holding.extend(parity_on);
                    let count = holding.len();
                    holding.sort_unstable();
                    holding.dedup();
                    prop_assert_eq!(holding.len(), count, "two of a stripe on one member");
                    for place in places.into_iter().rev() {
                        seen[waiting.remove(place).0] += 1;
                    }
                }
            };
            for (number, (member, looked)) in chunks.iter().enumerate() {
                waiting.push((number, member.index(members)));
                if *looked {
                    compose(&mut waiting, false)?;
                    prop_assert!(waiting.len() <= PATIENCE * usize::from(data));
                }
            }
            compose(&mut waiting, true)?;
            prop_assert!(waiting.is_empty() && seen.iter().all(|times| *times == 1));
        }
    }

    proptest! {
        #[test]
        fn chunks_dealt_apart_make_full_stripes_in_whatever_order_they_are_complete(
            data in 1..9u16,
            parity in 1..3u16,
            picks in prop::collection::vec((any::<prop::sample::Index>(), 0..6usize), 1..120),
        ) {
            let scheme = Scheme { data, parity };
            let members = scheme.members();
            // Each chunk is on a member that holds none of the stream's newest chunks.
            let mut dealt: Vec<usize> = Vec::new();
            for (pick, _) in &picks {
                let newest = &dealt[dealt.len().saturating_sub(usize::from(data) - 1)..];
                let others: Vec<usize> = (0..members).filter(|it| !newest.contains(it)).collect();
                dealt.push(others[pick.index(others.len())]);
            }
            // Each chunk is complete a little later than it was assigned.
            let mut order: Vec<usize> = (0..dealt.len()).collect();
            order.sort_by_key(|&number| number + picks[number].1 * usize::from(data) / 6);
            let mut waiting: Vec<usize> = Vec::new();
            let mut stripes = 0;
            let mut compose = |waiting: &mut Vec<usize>, last| {
                let on = |waiting: &[usize]| waiting.iter().map(|it| dealt[*it]).collect::<Vec<_>>();
                while let Some(places) = stripe(&on(waiting), scheme, members, last) {
                    stripes += 1;
                    places.iter().rev().for_each(|&place| _ = waiting.remove(place));
                }
            };
            for number in order {
                let place = waiting.partition_point(|it| *it < number);
                waiting.insert(place, number);
                compose(&mut waiting, false);
            }
            compose(&mut waiting, true);
            let full = dealt.len().div_ceil(usize::from(data));
            prop_assert!(stripes <= full + 2, "{} stripes where {} are full", stripes, full);
        }
    }

    #[test]
    fn parity_goes_to_the_member_that_has_least_of_it() {
        assert_eq!(targets(&[0], &[(0, 0), (1, 5), (2, 3), (3, 3)], 2), [2, 3]);
        assert_eq!(targets(&[0, 1], &[(0, 0), (1, 5)], 1), [] as [usize; 0]);
    }
}
