//! Care of stored scans: whether they are whole, what is left of them after a crash, and how long they stay.
//!
//! - [`context`]: what context packets say of the streams of a scan
//! - [`verify`]: checks every block, chunk, index and account against the others
//! - [`recover`]: seals an unsealed scan
//! - [`redundancy`]: checks the redundancy that is left, and restores lost data from it
//! - [`join`]: makes one scan of consecutive ones, without a copy
//! - [`remove`]: removes a scan's files, and no others
//! - [`retention`]: removes the oldest scans, and protects scans from removal
//!
//! It may read and change the files of a store through [`fullbore_store`], under the lock of the scan. It takes no part
//! in a recording.

pub mod context;
pub mod join;
pub mod recover;
pub mod redundancy;
pub mod remove;
pub mod retention;
pub mod verify;

#[cfg(test)]
mod tests;
