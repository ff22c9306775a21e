//! Keeps the account of a stream that has lost nothing, although the scan or another stream has.

use std::ops::Range;

use fullbore_core::account::Account;
use fullbore_core::gap::Gap;
use fullbore_core::index::Block;
use fullbore_core::manifest::Fill;
use fullbore_store::gaps::Gaps;
use fullbore_store::inventory::Inventory;

use super::reconstruct::Reconstructed;
use super::scan_chunks::MemberPart;

/// Returns the account of a stream, if index and chunks contain all that it counts, and nothing else.
pub fn account(inventory: &Inventory, reconstructed: &Reconstructed) -> Option<Account> {
    let account =
        inventory.of_stream(reconstructed.number).find_map(|it| it.account().get().cloned())?;
    let told = &inventory.manifest.streams[reconstructed.number];
    let sum = |of: fn(&Block) -> u32| -> u64 {
        reconstructed.blocks.iter().map(|whole| u64::from(of(&whole.block))).sum()
    };
    let agrees = account.terms.balance()
        && account.terms.written == sum(|block| block.present)
        && account.filled == sum(|block| block.frames - block.present);
    let gaps_are_known = told.fill == Fill::Omit || has_all(&reconstructed.parts, &account.gaps);
    let untouched = reconstructed.lacks_nothing() && reconstructed.parts.iter().all(is_whole);
    (agrees && gaps_are_known && untouched).then(|| reached(account))
}

/// Removes the note that frames are out of reach: all of them are here.
fn reached(mut account: Account) -> Account {
    if account.unreachable.take().is_some() {
        account.verdict = account.judge();
    }
    account
}

/// Returns true if the index of a member is as its recorder left it, and covers all chunks there.
fn is_whole(part: &MemberPart) -> bool {
    let chunks = || part.chunks.iter().filter(|chunk| !chunk.superseded);
    !part.index.torn
        && part.dropped.is_empty()
        && chunks().all(|chunk| chunk.found.is_empty() && chunk.file.is_some())
}

/// Returns true if the indexes contain every gap that an account lists.
fn has_all(parts: &[MemberPart], listed: &[Gap]) -> bool {
    let known = Gaps::paint(parts.iter().flat_map(MemberPart::gaps));
    let frames =
        |gap: &Gap| -> Range<i64> { gap.first..gap.first.saturating_add_unsigned(gap.count) };
    listed.iter().all(|gap| known.uncovered(frames(gap)).is_empty())
}
