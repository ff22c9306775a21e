//! A stream that has lost nothing, though the scan or another stream has: its account is as true as it was.

use std::ops::Range;

use fullbore_core::account::Account;
use fullbore_core::gap::Gap;
use fullbore_core::index::Block;
use fullbore_core::manifest::Fill;

use super::examine::Part;
use super::rebuild::Rebuilt;
use crate::store::gaps::Gaps;
use crate::store::inventory::Inventory;

/// The account beside a stream, if index and chunks have all that it tells of, and nothing else.
pub fn account(inventory: &Inventory, rebuilt: &Rebuilt) -> Option<Account> {
    let account = inventory.of_stream(rebuilt.number).find_map(|it| it.account().get().cloned())?;
    let told = &inventory.manifest.streams[rebuilt.number];
    let sum = |of: fn(&Block) -> u32| -> u64 {
        rebuilt.blocks.iter().map(|whole| u64::from(of(&whole.block))).sum()
    };
    let agrees = account.terms.balance()
        && account.terms.written == sum(|block| block.present)
        && account.filled == sum(|block| block.frames - block.present);
    let gaps_are_known = told.fill == Fill::Omit || has_all(&rebuilt.parts, &account.gaps);
    let untouched = rebuilt.lacks_nothing() && rebuilt.parts.iter().all(is_whole);
    (agrees && gaps_are_known && untouched).then_some(account)
}

/// Whether the index of a member is as its recorder left it, and tells of all that lies there.
fn is_whole(part: &Part) -> bool {
    let chunks = || part.chunks.iter().filter(|chunk| !chunk.superseded);
    !part.index.torn
        && part.dropped.is_empty()
        && chunks().all(|chunk| chunk.found.is_empty() && chunk.file.is_some())
}

/// Whether the indexes know of every gap that an account lists.
fn has_all(parts: &[Part], listed: &[Gap]) -> bool {
    let known = Gaps::paint(parts.iter().flat_map(Part::gaps));
    let frames =
        |gap: &Gap| -> Range<i64> { gap.first..gap.first.saturating_add_unsigned(gap.count) };
    listed.iter().all(|gap| known.uncovered(frames(gap)).is_empty())
}
