//! Tests of parts of the store that need its care: recovery, verification or removal.

mod copies;
mod markers;
mod renumber;
