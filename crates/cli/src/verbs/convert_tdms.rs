//! `fullbore convert file:NAME.tdms`: repairs and defragments a TDMS file, or converts its groups.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{bail, ensure};
use fullbore_containers::{SampleOptions, SampleTarget};
use fullbore_core::endpoint::Endpoint;
use fullbore_core::units::{ByteRate, ByteSize};
use fullbore_recording::export::{ConvertedTdms, ExportEvent, TdmsExport};
use indicatif::ProgressBar;

use crate::hint::explained;
use crate::output::{self, Output};

/// Runs the conversion.
pub fn run(
    from: &Endpoint,
    target: SampleTarget,
    mut show: impl FnMut(ExportEvent, &mut ProgressBar),
    output: Output,
) -> anyhow::Result<ExitCode> {
    let group = match &from.parameters[..] {
        [] => None,
        [(name, group)] if name == "group" => Some(group.clone()),
        [(name, _), ..] => bail!("`{name}`: file:NAME.tdms has one parameter, group=NAME"),
    };
    let file = PathBuf::from(&from.path);
    ensure!(
        from.authority.is_none() && TdmsExport::is_meant(&file),
        "{from}: samples are taken from store:SCAN, store:SCAN/STREAM or file:NAME.tdms"
    );
    let SampleTarget { path, options: SampleOptions { format, values }, .. } = target;
    let export = TdmsExport { from: file, group, path, format, values };
    let mut shown = ProgressBar::hidden();
    let made = export.run(&mut |event| show(event, &mut shown));
    shown.finish_and_clear();
    let made = made.map_err(explained)?;
    output.tell(&made, || text(&made))?;
    Ok(output::exit_code(made.outcome()))
}

fn text(made: &ConvertedTdms) -> String {
    let mut text = String::new();
    for it in &made.files {
        let group =
            it.group.as_ref().map_or_else(String::new, |group| format!(" of group {group}"));
        let (channels, values) = (it.channels, it.values);
        text += &format!(
            "{}: {values} values in {channels} channels{group}, {}\n",
            it.file.display(),
            ByteSize(it.bytes)
        );
    }
    if made.was_cut {
        text += &format!("{}: it was never closed, or is cut\n", made.from.display());
    }
    for lack in &made.lacks {
        text += &format!("{lack}\n");
    }
    let bytes: u64 = made.files.iter().map(|it| it.bytes).sum();
    let rate = ByteRate((bytes as f64 / made.seconds.max(1e-3)) as u64);
    text + &format!("{} segments, {:.1} s, {rate}\n", made.segments, made.seconds)
}
