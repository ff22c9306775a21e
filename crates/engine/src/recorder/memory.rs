//! How much block memory a recording gets: the sum of its reasons, what was asked for, or a default.

use fullbore_core::demand::{Demand, Stall, Sum};
use fullbore_core::endpoint::UdpSource;
use fullbore_core::layout::{BLOCK_BYTES, Geometry};
use fullbore_core::units::{ByteRate, ByteSize};

use super::check::known_rate;
use super::error::RecordError;
use super::event::{Event, Memory, Tell};
use super::plan::Plan;
use crate::source::{AMPLE_BLOCKS, wanted_block_bytes};
use crate::store;

/// Block memory if no rate is known, for all sources together.
const POOL_BYTES: u64 = 2 << 30;

/// Block memory of a PandA if nothing is said: two seconds at the rate of its link.
const PANDA_POOL_BYTES: u64 = 256 << 20;

/// The least block memory a source works with, if nothing is known of its rate.
const LEAST_POOL_BYTES: u64 = 16 << 20;

/// The same, however slow it is.
const LEAST_SLOW_BYTES: u64 = 2 << 20;

/// What the sources ask for together, if each says beforehand how much it sends. All of them get the same share, so
/// all are reckoned as the fastest.
fn demand(plan: &Plan) -> Option<Demand> {
    if plan.members.is_empty() {
        // A container keeps blocks for longer than a disk takes to write them.
        return None;
    }
    let rates: Option<Vec<u64>> = plan.sources.iter().map(known_rate).collect();
    let fastest = rates?.into_iter().max()?;
    let sources = plan.sources.len() as u64;
    Some(Demand {
        sources,
        rate: ByteRate(fastest.saturating_mul(sources)),
        block_bytes: plan.sources.iter().map(block_bytes).max().unwrap_or(BLOCK_BYTES),
        members: plan.members.len() as u64,
        depth_bytes: store::Settings::of_member(0).depth_bytes,
        stall: plan.stall.clone().unwrap_or_else(Stall::assumed),
    })
}

/// How large the blocks of a source will be, as far as that can be known beforehand.
fn block_bytes(source: &UdpSource) -> u64 {
    let wanted = wanted_block_bytes(source, usize::MAX, known_rate(source));
    let whole = source.frame_bytes.and_then(|bytes| Geometry::of_frames(bytes, wanted, 0).ok());
    whole.map_or(wanted, |geometry| geometry.block_bytes.into())
}

/// The least block memory that each source works with: less than usual for all that are known to be slow.
pub(super) fn least_share(plan: &Plan) -> u64 {
    let least = |source: &UdpSource| match known_rate(source) {
        Some(_) => {
            (AMPLE_BLOCKS as u64 * block_bytes(source)).clamp(LEAST_SLOW_BYTES, LEAST_POOL_BYTES)
        }
        None => LEAST_POOL_BYTES,
    };
    plan.sources.iter().map(least).max().unwrap_or(LEAST_POOL_BYTES)
}

/// Block memory of all sources of datagrams together.
pub(super) fn wanted(plan: &Plan, available: u64) -> Result<u64, RecordError> {
    let sources = plan.sources.len() as u64;
    let least = sources.saturating_mul(least_share(plan));
    let wanted = match (plan.share(), demand(plan)) {
        (Some(share), _) => share.saturating_mul(sources),
        (None, Some(demand)) => {
            let sum = demand.sum();
            if sum.bytes > available {
                return Err(RecordError::MemorySum { sum, available: ByteSize(available) });
            }
            sum.bytes.max(least)
        }
        (None, None) => POOL_BYTES.min(available / 4).max(least),
    };
    match wanted > available {
        true => {
            Err(RecordError::Memory { wanted: ByteSize(wanted), available: ByteSize(available) })
        }
        false => Ok(wanted),
    }
}

/// How much block memory each PandA gets.
pub(super) fn panda_pool_bytes(plan: &Plan) -> u64 {
    plan.share().unwrap_or(PANDA_POOL_BYTES)
}

/// Tells how much there will be, and why, before any of it is taken. A warning if less was asked for than the sum.
pub(super) fn tell_of_it(
    plan: &Plan,
    available: u64,
    tell: &mut Tell<'_>,
) -> Result<(), RecordError> {
    if plan.sources.is_empty() {
        return Ok(());
    }
    let bytes = wanted(plan, available)?;
    let demand = demand(plan);
    let rides_out_ms = demand.as_ref().map(|demand| demand.rides_out_ms(bytes));
    let sum: Option<Sum> = demand.as_ref().map(Demand::sum);
    if let (Some(sum), Some(ms)) = (&sum, rides_out_ms)
        && bytes < sum.bytes
        && ms < sum.stall.ms
    {
        let text = format!(
            "{} of block memory ride out a stall of {ms} ms; one of {} ms is reckoned with, which takes {}",
            ByteSize(bytes),
            sum.stall.ms,
            ByteSize(sum.bytes)
        );
        tell(&Event::Warning { text });
    }
    let asked = plan.buffer.is_some();
    let of_pandas = plan.pandas.len() as u64 * panda_pool_bytes(plan);
    let bytes = bytes.saturating_add(of_pandas);
    tell(&Event::Memory(Memory { bytes, of_pandas, asked, rides_out_ms, sum }));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(query: &str) -> UdpSource {
        UdpSource::parse(&format!("udp://0.0.0.0:46220?{query}")).unwrap().remove(0)
    }

    #[test]
    fn blocks_of_a_slow_stream_are_reckoned_as_small_as_they_will_be() {
        // Half a second of it, in whole frames that keep direct I/O aligned.
        assert_eq!(block_bytes(&source("format=vdif&frame=8032&fps=250")), 8032 * 128);
        assert_eq!(block_bytes(&source("format=vdif&frame=8192&fps=250")), 1_024_000 / 8192 * 8192);
        assert_eq!(block_bytes(&source("format=vdif&frame=8032&fps=32000")), 8032 * 512);
        assert_eq!(block_bytes(&source("format=vdif")), BLOCK_BYTES);
        assert_eq!(block_bytes(&source("format=vdif&frame=8032&fps=250&block=2MiB")), 8032 * 256);
    }
}
