//! The account of a copy that is sealed before all of it has arrived: the account of its source, with the frames that
//! have not arrived as *not transferred*.
//!
//! ```text
//! source | b0 | b1 | b2 | b3 | b4 | b5 |      its manifest gives blocks, bytes and terms
//! copy        | b1 | b2 |    | b4 |           head, holes and tail are not transferred
//! ```

use fullbore_core::account::{Account, Verdict};
use fullbore_core::gap::{Cause, Gap};
use fullbore_core::manifest::{Fill, SourceStream, Stream};
use fullbore_store::gaps::Gaps;

use super::reconstruct::GoodBlock;

/// Returns the frames of the source before the first and after the last frame that is known here.
pub fn ends(told: &Stream, source: &SourceStream, blocks: &[GoodBlock], known: &Gaps) -> Vec<Gap> {
    let frames: u64 = blocks.iter().map(|it| u64::from(it.block.frames)).sum();
    let present: u64 = blocks.iter().map(|it| u64::from(it.block.present)).sum();
    let not_transferred = known.total(Cause::NotTransferred);
    let starts = blocks.first().map(|it| it.block.first).into_iter().chain(known.start());
    let ends = blocks
        .last()
        .map(|it| it.block.first.saturating_add(it.block.frames.into()))
        .into_iter()
        .chain(known.end());
    let (start, end) = (starts.min().unwrap_or(0), ends.max().unwrap_or(0));
    let frame_bytes = told.geometry.map_or(0, |it| u64::from(it.frame_bytes));
    let rest = match &source.account {
        Some(account) if told.fill == Fill::Omit => {
            account.terms.written.saturating_sub(present + not_transferred)
        }
        Some(account) => account.terms.expected.saturating_sub(end.abs_diff(start)),
        None => {
            let recorded = source.bytes.checked_div(frame_bytes).unwrap_or(0);
            recorded.saturating_sub(frames + not_transferred)
        }
    };
    let head = match (blocks.first(), told.geometry) {
        (Some(first), Some(geometry)) if frame_bytes > 0 => {
            let of_block = u64::from(geometry.block_bytes) / frame_bytes;
            let before = first.block.sequence.saturating_mul(of_block);
            before.saturating_sub(first.block.first.abs_diff(start)).min(rest)
        }
        _ => 0,
    };
    let gap = |first, count| Gap { first, count, cause: Cause::NotTransferred };
    let head_starts = start.saturating_sub_unsigned(head);
    [gap(head_starts, head), gap(end, rest - head)].into_iter().filter(|it| it.count > 0).collect()
}

/// Enters what has not arrived. Returns true if the rest of the account is that of the source, which is known once the
/// source is sealed.
pub fn tell(account: &mut Account, source: &SourceStream, blocks: u64, bytes: u64) -> bool {
    account.not_transferred = Some(source.not_transferred(blocks, bytes));
    let Some(summary) = &source.account else { return false };
    // Losses of the source have their terms, even those without a place in the stream.
    let mut terms = summary.terms;
    terms.not_transferred = terms.written.saturating_sub(account.terms.written);
    terms.written = account.terms.written;
    terms.expected = terms.sum();
    if terms.missing + terms.damaged > account.terms.missing + account.terms.damaged {
        account.gaps_unlisted += 1;
    }
    account.terms = terms;
    account.presence.clone_from(&summary.presence);
    account.explained = summary.beside.as_ref().and_then(|it| it.explained);
    account.verdict = summary.verdict.max(Verdict::Consistent);
    true
}
