//! `fullbore panda`: commands for one PandA, from its capture settings to its files.

mod arm;
pub mod record;
mod show;

use std::process::ExitCode;

use clap::{Args as Arguments, Subcommand};
use fullbore_core::format::panda::bandwidth::Load;
use fullbore_core::format::panda::{PandaSource, general};
use fullbore_core::units::ByteRate;
use fullbore_engine::panda::{ControlPort, Timeouts};

use crate::hint::explained;
use crate::output::Output;

/// Show, arm and record a PandA.
///
///   fullbore panda show 172.23.252.201 --rate 1e6
///   fullbore panda record 172.23.252.201 capture-%d.h5 --num 5 --arm
///   fullbore panda disarm 172.23.252.201
///
/// HOST is an address or a name, with `:PORT` if its control port is not 8888, or
/// a whole endpoint: `panda://HOST:8888?data=8889`.
#[derive(Arguments)]
#[command(verbatim_doc_comment)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    Show(show::Args),
    Arm(arm::ArmArgs),
    Disarm(arm::DisarmArgs),
    Record(record::Args),
}

/// Runs the subcommand.
pub fn run(args: Args, output: Output) -> anyhow::Result<ExitCode> {
    match args.action {
        Action::Show(args) => show::run(args, output),
        Action::Arm(args) => arm::arm(args, output),
        Action::Disarm(args) => arm::disarm(args, output),
        Action::Record(args) => record::run(args, output),
    }
}

/// `HOST`, `HOST:PORT` or `panda://…`.
pub fn source(host: &str) -> anyhow::Result<PandaSource> {
    let bare_ipv6 = host.parse::<std::net::Ipv6Addr>().is_ok();
    let text = match host {
        _ if host.contains("://") => host.to_owned(),
        _ if bare_ipv6 => format!("panda://[{host}]"),
        _ => format!("panda://{host}"),
    };
    PandaSource::parse(&text).map_err(explained)
}

/// Connects to the control port of a PandA.
fn control(source: &PandaSource) -> anyhow::Result<ControlPort> {
    ControlPort::connect(source, Timeouts::default()).map_err(explained)
}

/// The effect of a trigger rate on the link, and advice if it does not fit.
pub fn advice(load: Load) -> String {
    let rate = ByteRate(load.bytes_per_second as u64);
    let percent = load.of_link * 100.0;
    let mut text = format!(
        "{} triggers a second: {:.1} MB/s ({rate}), {percent:.0} % of the link\n",
        general(load.samples_per_second, 6),
        load.bytes_per_second / 1e6
    );
    if load.average > 1 {
        let verdict = match load.of_link > 1.0 {
            true => "it does not fit: it will end in `Data overrun`",
            false => {
                "it fits the link, but a PandA's own processor has been seen to fall behind above 50 MB/s"
            }
        };
        let every = load.samples_per_second / load.average as f64;
        text += &format!(
            "  {verdict}\n  average: capture Mean (or Min Max Mean) and let one sample stand for {} \
             triggers: {} samples a second\n  or capture fewer fields\n",
            load.average,
            general(every, 6)
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use fullbore_core::format::panda::bandwidth;

    use super::*;

    #[test]
    fn a_rate_above_that_of_the_pandas_processor_is_warned_of() {
        let told = |megabytes: f64| advice(bandwidth::load(60, megabytes * 1e6 / 60.0));
        let falls_behind = "a PandA's own processor has been seen to fall behind above 50 MB/s";
        assert!(!told(49.0).contains("fall behind") && !told(49.0).contains("does not fit"));
        for above in [51.0, 117.0] {
            assert!(told(above).contains(falls_behind), "{}", told(above));
        }
        assert!(told(119.0).contains("it does not fit: it will end in `Data overrun`"));
    }
}
