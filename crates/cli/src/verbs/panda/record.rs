//! `fullbore panda record`: `record --to hdf5:` with the options of a PandA.

use std::process::ExitCode;
use std::time::Duration;

use clap::{ArgAction, Args as ClapArgs};
use fullbore_core::container::{self, Compression, Existing, Hdf5Target};
use fullbore_core::units::ByteSize;
use fullbore_engine::recorder::{PandaConfig, RecordingConfig, SourceConfig};
use fullbore_recording::options::target::{container as config_of, scan_of_file};
use fullbore_recording::options::told_apart;

use super::source;
use crate::hint::explained;
use crate::output::Output;
use crate::verbs::record::record;

/// Record acquisitions of PandAs into HDF5 files that can be read while they grow.
///
/// FILE is one file, or a template: `%d` is the number of the acquisition. If
/// several acquisitions share a file, they follow one another, and /acquisitions
/// says which rows belong to which, and how the PandA was set up for each.
///
///   fullbore panda record 172.23.252.201 capture-%d.h5 --num 5 --arm
///   fullbore panda record 172.23.252.201 all.h5 --num 0 --raw
///   fullbore panda record 172.23.252.201 172.23.252.202 scan-%d.h5 --num 5 --arm
///
/// With several PandAs, each has its own file, scan-1_panda1.h5 and
/// scan-1_panda2.h5. scan-1.h5 shows them side by side, one group each, once all
/// have ended. ?name=sample in a panda:// endpoint renames a PandA. No PandA is
/// armed again before all have ended the same acquisition. If one fails, the
/// others finish their acquisition, and none is armed again.
///
/// Datasets have the names that the PandABlocks client uses, one per column. They
/// are scaled to doubles; with --raw they stay integers, with scale and offset
/// beside them. Samples that cannot be trusted after an overrun or a lost
/// connection are not written, and the account counts them. If an acquisition
/// continues after an overrun, recording resumes, and the account counts the
/// samples in between.
///
/// Ctrl-C stops: with --arm, fullbore disarms the PandA and receives the rest of
/// the acquisition. An acquisition that another client armed continues, so its
/// number of samples stays unknown and its account is unproven. A second Ctrl-C
/// ends at once; samples that the PandA took and did not send count as missing.
///
/// fullbore checks the names of all files before it arms. If a file appears later,
/// or cannot take an acquisition, it stays as it is: the acquisition goes to a file
/// beside it, capture-7.1.h5 for capture-7.h5, with a warning. Readers may keep a
/// file open while the next acquisition is appended.
///
/// Appended data (--existing append) must have the same columns, units, scale and
/// offset as the file, and --raw if the file has it. The file's compression
/// applies; a different --compression is refused. --flush and --rate may differ.
///
/// At the start, fullbore prints the bytes of each sample, and with --rate whether
/// the link can carry them, or which fields to average.
///
/// This is `fullbore record panda://HOST… --to hdf5:FILE`, which has more options:
/// limits in time, cores, priority, and datagrams beside PandAs.
///
/// Exit codes: 0 every sample of every acquisition is in its file; 1 samples are
/// missing or damaged, or may be, or recording ended before all acquisitions came;
/// 2 the PandA could not be recorded, or failed for good: its file has the samples
/// that are certain.
#[derive(ClapArgs)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// The PandAs, each an address, a name, or a panda:// endpoint.
    #[arg(value_name = "HOST", required = true, num_args = 1..)]
    hosts: Vec<String>,
    /// The file, a template for several, or an hdf5: endpoint.
    #[arg(value_name = "FILE")]
    file: String,
    /// Stop after this many acquisitions; 0: run until stopped.
    #[arg(long, value_name = "N", default_value_t = 1)]
    num: u64,
    /// Arm the PandA when all is ready, and again after each acquisition.
    #[arg(long)]
    arm: bool,
    /// Write doubles, scaled by fullbore [default].
    #[arg(long, action = ArgAction::SetTrue, conflicts_with = "raw")]
    scaled: bool,
    /// Write integers as captured, with scale and offset beside them.
    #[arg(long)]
    raw: bool,
    /// Interval at which readers see new samples [default: 1s]
    #[arg(long, value_name = "TIME", value_parser = container::flush)]
    flush: Option<Duration>,
    /// If the file exists: refuse, append (see above) or overwrite [default: refuse]
    #[arg(long, value_name = "WHAT", value_parser = container::existing)]
    existing: Option<Existing>,
    /// Compression: none, gzip:1 to gzip:9, or bitshuffle (readers need hdf5plugin) [default: that of the file
    /// appended to, else none]
    #[arg(long, value_name = "HOW", value_parser = container::compression)]
    compression: Option<Compression>,
    /// Expected samples per second; sets the size of HDF5 chunks.
    #[arg(long, value_name = "N", value_parser = container::rate)]
    rate: Option<f64>,
    /// Block memory of each PandA [default: 256 MiB]
    #[arg(long, value_name = "SIZE")]
    buffer: Option<ByteSize>,
    /// Time to retry a lost connection.
    #[arg(long, value_name = "TIME", value_parser = crate::verbs::sending::duration, default_value = "30s")]
    reconnect: Duration,
    /// Show no progress.
    #[arg(long)]
    quiet: bool,
}

/// Runs the command.
pub fn run(args: Args, output: Output) -> anyhow::Result<ExitCode> {
    let quiet = args.quiet;
    record(resolve(args)?, None, output, quiet)
}

/// Converts arguments to a recording's configuration.
fn resolve(args: Args) -> anyhow::Result<RecordingConfig> {
    let sources = args.hosts.iter().map(|host| source(host)).collect::<anyhow::Result<_>>()?;
    let mut target = Hdf5Target::parse(&args.file).map_err(explained)?;
    target.scaled &= !args.raw;
    target.scaled |= args.scaled;
    target.flush = args.flush.unwrap_or(target.flush);
    target.existing = args.existing.unwrap_or(target.existing);
    target.compression = args.compression.or(target.compression);
    target.rate = args.rate.or(target.rate);
    let panda =
        |source| PandaConfig { source, arm: args.arm, reconnect: args.reconnect, dump: None };
    let pandas: Vec<SourceConfig> =
        told_apart(sources).into_iter().map(|source| panda(source).into()).collect();
    let scan = scan_of_file(&target.path);
    let further = args.num.checked_sub(1).unwrap_or(u64::MAX);
    // The size is that of each PandA; the recorder divides the sum.
    let buffer = args.buffer.map(|each| ByteSize(each.0.saturating_mul(pandas.len() as u64)));
    Ok(RecordingConfig { buffer, ..config_of(pandas, &target, vec![scan], further) })
}
