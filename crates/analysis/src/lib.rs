//! What the samples of a stream contain: spectra, levels, power over time, and where to find it.
//!
//! ```text
//! frames ──► SampleFrames ──► Batcher ──► Accumulator of each thread ──► Analysis ──► Report
//!            thread, place,   whole       decode, window, Fourier        sums over    CSV, JSON,
//!            payload          segments    transform, sums                bins         pictures
//! ```
//!
//! Samples of a thread are cut into *segments*, each as long as one Fourier transform: `2 × channels` real samples, or
//! `channels` complex ones. Segment *k* begins at sample *k* × length of the stream, whatever is absent before it. A
//! segment with an absent sample is left out of every sum and counted. So results do not depend on how the data is cut
//! into frames, blocks and threads.
//!
//! - [`plan`]: what is computed; [`window`]: the weights of a segment
//! - [`frames`] and [`batch`]: from frames to segments; [`source`]: frames of files and of stored streams
//! - [`accumulate`] and [`parallel`]: the sums; [`levels`]: expected fractions of a Gaussian signal
//! - [`analysis`]: results; [`report`]: results as CSV, JSON and pictures; [`chart`]: pictures; [`request`]: all of it
//!   for a file or a scan; [`live`]: what arrives now
//! - [`content`]: the index of a stored stream by its content, and queries of it
//! - [`trigger`]: conditions on samples that arrive

pub mod accumulate;
pub mod analysis;
pub mod batch;
pub mod chart;
pub mod content;
pub mod frames;
pub mod levels;
pub mod live;
pub mod parallel;
pub mod plan;
pub mod report;
pub mod request;
pub mod source;
pub mod trigger;
pub mod window;
