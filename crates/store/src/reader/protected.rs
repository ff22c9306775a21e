//! Finds the stripes of blocks, and the blocks of lost indexes: the stripe metadata beside parity lists them.

use std::collections::{BTreeMap, BTreeSet};

use fullbore_core::layout::Geometry;

use super::merge::absurd;
use super::stream::{BlockLocation, Presence};
use crate::inventory::Inventory;
use crate::redundancy::{InStripe, StripeRecord};

/// Returns a stream's blocks, each with its stripe, including blocks that only stripe metadata lists.
pub(super) fn by(
    stripes: &[StripeRecord],
    inventory: &Inventory,
    mut blocks: Vec<BlockLocation>,
    geometry: Option<Geometry>,
) -> Vec<BlockLocation> {
    let mut of_chunk: BTreeMap<u32, InStripe> = BTreeMap::new();
    let known: BTreeSet<u64> = blocks.iter().map(|location| location.block.sequence).collect();
    for told in stripes {
        for (place, chunk) in told.chunks.iter().enumerate() {
            let in_stripe = InStripe { stripe: told.stripe.clone(), place };
            of_chunk.entry(chunk.chunk).or_insert(in_stripe);
            let unknown = chunk.blocks.iter().filter(|it| !known.contains(&it.block.sequence));
            let can_be = |it: &&crate::inventory::BlockRecord| {
                geometry.is_none_or(|geometry| absurd(&it.block, &geometry).is_none())
            };
            let data = &told.stripe.data[place];
            let file = data.root.and_then(|root| {
                let name = &inventory.holdings[told.holding].name;
                let mut holdings = inventory.holdings.iter().enumerate();
                holdings.find(|(_, it)| it.root == root && it.name == *name)
            });
            let bytes = file.and_then(|(_, it)| Some(it.chunk(chunk.chunk)?.bytes));
            blocks.extend(unknown.filter(can_be).map(|record| BlockLocation {
                block: record.block,
                holding: file.map_or(told.holding, |(at, _)| at),
                path: data.path.clone(),
                device: data.device,
                presence: match bytes {
                    None => Presence::Missing,
                    Some(bytes) if record.block.offset + u64::from(record.block.bytes) <= bytes => {
                        Presence::Whole
                    }
                    Some(_) => Presence::Truncated,
                },
                lengths: record.lengths,
                records: Some(told.path.clone()),
                stripe: None,
            }));
        }
    }
    blocks.sort_by_key(|location| location.block.sequence);
    blocks.dedup_by_key(|location| location.block.sequence);
    for location in &mut blocks {
        location.stripe = of_chunk.get(&location.block.chunk).cloned();
    }
    blocks
}
