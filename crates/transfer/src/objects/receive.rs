//! Brings a copy from an object store back into a store, as a scan.

use std::collections::BTreeMap;
use std::time::Instant;

use fullbore_core::block_set::BlockSet;
use fullbore_core::index::Block;
use fullbore_linux::stop_handle::StopHandle;
use fullbore_store::Member;
use fullbore_store::copies::Digest;
use fullbore_store::landing::{Landing, LandingError, Origin, Sealed};
use sha2::{Digest as _, Sha256};

use super::copy::{ReadBlock, RemoteScan};
use super::error::ObjectError;
use super::reading::wait;
use super::send::Progress;
use crate::governor::Governor;
use crate::outgoing::Outgoing;
use crate::receive::{ROUND, ROUND_BYTES};
use crate::send::Memory;

/// A scan that was received.
#[derive(Clone, Copy, Debug)]
pub struct Received {
    /// Its blocks, bytes and digest.
    pub sealed: Sealed,
    /// Bytes of blocks that arrived in this attempt.
    pub carried_bytes: u64,
}

/// Receives a copy onto these members. Blocks that are durable there are not read again.
pub fn receive(
    remote: &RemoteScan<'_>,
    members: &[Member],
    governor: &Governor,
    stop: &StopHandle,
    tell: &mut dyn FnMut(&Progress),
) -> Result<Received, ObjectError> {
    let outgoing = Outgoing::open(&remote.roots(), remote.name());
    let outgoing = outgoing.map_err(|error| ObjectError::Invalid {
        address: remote.address(),
        why: error.to_string(),
    })?;
    let manifest = outgoing.manifest();
    let place = remote.place().to_string();
    let key = Digest(Sha256::digest(place.as_bytes()).into()).to_string();
    let origin = Origin { host: place, key };
    let landing = match Landing::begin(members, &manifest, &origin, remote.bytes()) {
        Ok(landing) => landing,
        Err(LandingError::Complete { sealed, .. }) => {
            return Ok(Received { sealed, carried_bytes: 0 });
        }
        Err(error) => return Err(error.into()),
    };
    let carried_bytes = fetch(remote, &outgoing, &landing, governor, stop, tell)?;
    let sealed = landing.seal(&manifest, &outgoing.accounts(), &outgoing.records())?;
    if sealed.digest != remote.digest().0 {
        let why = "the digest of the received blocks differs".to_owned();
        return Err(ObjectError::Invalid { address: remote.address(), why });
    }
    Ok(Received { sealed, carried_bytes })
}

/// Fetches the blocks that are not durable here. Returns their bytes.
fn fetch(
    remote: &RemoteScan<'_>,
    outgoing: &Outgoing,
    landing: &Landing,
    governor: &Governor,
    stop: &StopHandle,
    tell: &mut dyn FnMut(&Progress),
) -> Result<u64, ObjectError> {
    let durable = landing.durable();
    let wanted = |(stream, sequence): (usize, u64)| !has(&durable, stream, sequence);
    let streams = &remote.scan().streams;
    let all: Vec<_> = streams.iter().map(|it| (it.number, 0..it.blocks.len())).collect();
    let blocks =
        streams.iter().flat_map(|it| it.blocks.iter().map(move |at| (it.number, &at.block)));
    let known = |&(stream, block): &(usize, &Block)| has(&durable, stream, block.sequence);
    let before: u64 = blocks.filter(known).map(|(_, block)| u64::from(block.bytes)).sum();
    let (mut memory, mut carried, mut round) = (Memory::default(), 0, Instant::now());
    remote
        .read(all, &wanted, &mut |read| {
            pace(governor, stop, read.location.block.bytes)?;
            carried += u64::from(read.location.block.bytes);
            take(remote, outgoing, landing, &mut memory, read)?;
            if round.elapsed() >= ROUND || landing.fresh_bytes() >= ROUND_BYTES {
                landing.sync()?;
                round = Instant::now();
            }
            tell(&Progress {
                scan: remote.name().clone(),
                done: before + carried,
                all: remote.bytes(),
                allowance: governor.now(),
            });
            Ok(true)
        })
        .inspect_err(|_| {
            // What arrived is kept, for the next attempt. The first error is the one to report.
            let _ = landing.sync();
        })?;
    Ok(carried)
}

fn has(durable: &BTreeMap<u16, BlockSet>, stream: usize, sequence: u64) -> bool {
    durable.get(&(stream as u16)).is_some_and(|blocks| blocks.contains(sequence))
}

/// Waits until the governor has granted a block.
fn pace(governor: &Governor, stop: &StopHandle, bytes: u32) -> Result<(), ObjectError> {
    let mut left = bytes as usize;
    while left > 0 {
        left -= wait(governor, stop, left)?;
    }
    Ok(())
}

fn take(
    remote: &RemoteScan<'_>,
    outgoing: &Outgoing,
    landing: &Landing,
    memory: &mut Memory,
    read: ReadBlock<'_>,
) -> Result<(), ObjectError> {
    if let Some(wrong) = read.wrong {
        let first = wrong.to_string();
        return Err(ObjectError::Damaged { address: remote.address(), blocks: 1, first });
    }
    let sequence = read.location.block.sequence;
    let source = outgoing.block((read.stream as u16, sequence));
    let source = source.ok_or_else(|| ObjectError::Invalid {
        address: remote.address(),
        why: format!("the records of block {sequence} cannot be read"),
    })?;
    landing.check(&source.records)?;
    let aligned = memory.of(read.data.len());
    let aligned = aligned.map_err(|error| ObjectError::Resources(error.to_string()))?;
    aligned[..read.data.len()].copy_from_slice(read.data);
    Ok(landing.write(&source.records, aligned)?)
}
