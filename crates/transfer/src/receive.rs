//! The receiving end of a transfer.
