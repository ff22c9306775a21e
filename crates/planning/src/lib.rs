//! Whether a machine can sustain a recording, and whether it is set up for one: the answer before the run.
//!
//! - [`plan`]: streams as flows over a machine as a tree of links, checked by rules R1 to R13
//! - [`arming`]: the quick part of both, for a recording that is about to begin
//! - [`doctor`]: the settings of this host that cost a recorder frames, the commands that change them, and a way back
//!
//! Nothing here records, writes on a store, or measures. A plan rests on what was typed, on what the kernel reports
//! below a given root, on earlier results of `fullbore bench`, and on published tables, and says which. An input that
//! none of these has is *not known*, and no rule passes because of it.

#![forbid(unsafe_code)]

pub mod arming;
pub mod doctor;
pub mod plan;
