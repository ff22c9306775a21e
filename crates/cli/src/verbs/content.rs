//! `fullbore index` and `fullbore find`: what stored streams contain, and when.

use std::process::ExitCode;

use clap::Args as ClapArgs;
use fullbore_analysis::content::{self, Content, query::Query};
use fullbore_care::context::is_context;
use fullbore_linux::stop_handle::StopHandle;
use fullbore_store::reader::{Scan, StoredStream};

use super::scan_arg;
use crate::hint::explained;
use crate::output::{self, Output};
use crate::store_arg::StoreArg;

/// Index the streams of a scan by their content: power in each second, sample statistics, bursts.
///
/// The index is kept beside each stream (content.json), and `fullbore find` reads it. It is made at the lowest priority.
#[derive(ClapArgs)]
#[command(verbatim_doc_comment)]
pub struct IndexArgs {
    /// A scan, or one stream of it (SESSION_SCAN/STREAM).
    scan: String,
    #[command(flatten)]
    store: StoreArg,
    /// Power of a burst above the median of its channel, in dB.
    #[arg(long, value_name = "DB", default_value_t = 6.0)]
    burst: f64,
}

/// Find the times at which an indexed scan fulfils a query.
///
///   fullbore find r1234_no0001 'power(ch3) > -20 dB for 1s'
///   fullbore find r1234_no0001/46220 'burst(any) > 10 dB or absent(any) > 1 %'
///
/// Quantities are power(ch), in dB relative to the largest level, burst(ch), in dB above the median, and absent(ch),
/// in %. Parts are joined with and, or, not and parentheses. Each second counts as a whole.
///
/// Exit codes: 0 something was found; 1 nothing; 2 the query is wrong, or there is no index.
#[derive(ClapArgs)]
#[command(verbatim_doc_comment)]
pub struct FindArgs {
    /// A scan, or one stream of it (SESSION_SCAN/STREAM).
    scan: String,
    /// The query.
    query: String,
    #[command(flatten)]
    store: StoreArg,
}

/// Runs `index`.
pub fn index(args: &IndexArgs, output: Output) -> anyhow::Result<ExitCode> {
    content::yield_to_others();
    let (stop, threshold) = (StopHandle::default(), 10f64.powf(args.burst / 10.0));
    let made = each(&args.store, &args.scan, |scan, stream| {
        let made = content::index(scan, stream, threshold, &stop).map_err(explained)?;
        made.write(scan, stream).map_err(explained)?;
        Ok(made)
    })?;
    output.tell(&made, || made.iter().map(Content::summary).collect())?;
    let whole = made.iter().all(|content| content.lost == 0);
    Ok(ExitCode::from(if whole { output::GOOD } else { output::FOUND }))
}

/// Runs `find`.
pub fn find(args: &FindArgs, output: Output) -> anyhow::Result<ExitCode> {
    let query: Query = args.query.parse()?;
    let found = each(&args.store, &args.scan, |scan, stream| {
        Ok(query.find(&Content::read(scan, stream).map_err(explained)?)?)
    })?;
    let found = found.concat();
    output.tell(&found, || found.iter().map(|it| format!("{it}\n")).collect())?;
    Ok(ExitCode::from(if found.is_empty() { output::FOUND } else { output::GOOD }))
}

/// Does the same for each stream with data, or for the one that is named.
fn each<T>(
    store: &StoreArg,
    text: &str,
    work: impl Fn(&Scan, &StoredStream) -> anyhow::Result<T>,
) -> anyhow::Result<Vec<T>> {
    let (scan, only) = scan_arg::open(&store.members()?, text)?;
    if let Some(name) = only {
        return Ok(vec![work(&scan, scan_arg::stream(&scan, name.as_str())?)?]);
    }
    scan.streams
        .iter()
        .filter(|it| !it.blocks.is_empty() && !is_context(it))
        .map(|it| work(&scan, it))
        .collect()
}
