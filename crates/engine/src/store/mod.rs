//! Where blocks go on disk: members, the writer of each, plain chunk files and their index.
//!
//! ```text
//! <member>/.fullbore/member.json                              who the member is
//! <member>/<scan-stream>/<scan-stream>.00000000 …             chunks that are complete
//! <member>/<scan-stream>/.fullbore/index                      what each block is
//! <member>/<scan-stream>/.fullbore/<scan-stream>.00000003     the chunk being filled, at full size
//! <member>/<scan-stream>/.fullbore/spare                      space for the next one
//! ```
//!
//! A chunk is filled under `.fullbore/`, where its space is taken beforehand at its full size, and
//! renamed into place when all of it is written (`docs/decisions/0001-chunk-files.md`). So whoever
//! reads a stream's directory sees whole chunks and nothing else, and after a crash the index says
//! how much of the file under `.fullbore/` counts. A chunk that begins in the middle, because another
//! member failed while filling it, stays there, at its own offset; the index says where it belongs.

mod chunk;
mod disk;
mod journal;
mod member;
mod pages;
mod stream;
mod writer;

#[cfg(test)]
mod faulty;

pub use disk::{Access, clock};
pub use member::{Member, MemberError};
pub use writer::{Lane, Settings, Writer, WriterError, spawn};

/// The name, under a stream's `.fullbore/`, of space taken for a chunk without a number yet.
pub const SPARE_FILE: &str = "spare";
