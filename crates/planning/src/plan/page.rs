//! The answer as a page (begun below).
