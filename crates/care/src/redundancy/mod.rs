//! The care of redundancy: what is left of it, and the restoration of lost data from it. [`fullbore_store::redundancy`]
//! makes it.
//!
//! - [`check`]: the redundancy that is left
//! - [`restore`]: restores lost data onto other members

pub mod check;
mod duplicates;
pub mod restore;

#[cfg(test)]
mod tests;
