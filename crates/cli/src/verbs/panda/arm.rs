//! `fullbore panda arm` and `disarm`.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args as ClapArgs;
use serde::Serialize;

use super::{control, source};
use crate::hint::explained;
use crate::output::{GOOD, Output};

/// Arm a PandA: start an acquisition for all clients of its data port.
#[derive(ClapArgs)]
pub struct ArmArgs {
    /// The PandA: an address, a name, or a panda:// endpoint.
    #[arg(value_name = "HOST")]
    host: String,
    /// Time to wait for readers of the last acquisition.
    #[arg(long, value_name = "TIME", value_parser = crate::verbs::sending::duration, default_value = "5s")]
    wait: Duration,
}

/// Disarm a PandA: end its acquisition after it has sent all captured samples.
#[derive(ClapArgs)]
pub struct DisarmArgs {
    /// The PandA: an address, a name, or a panda:// endpoint.
    #[arg(value_name = "HOST")]
    host: String,
}

#[derive(Serialize)]
struct ArmJson {
    host: String,
    armed: bool,
    /// The number of data connections.
    readers: u32,
}

/// Runs `arm`.
pub fn arm(args: ArmArgs, output: Output) -> anyhow::Result<ExitCode> {
    let source = source(&args.host)?;
    let mut control = control(&source)?;
    let readers = control.status().map_err(explained)?.readers;
    control.arm_when_drained(args.wait).map_err(explained)?;
    let told = ArmJson { host: source.host, armed: true, readers };
    output.tell(&told, || match readers {
        0 => format!("{} is armed; no client is connected to its data port\n", told.host),
        _ => format!("{} is armed, {readers} connected to its data port\n", told.host),
    })?;
    Ok(ExitCode::from(GOOD))
}

/// Runs `disarm`.
pub fn disarm(args: DisarmArgs, output: Output) -> anyhow::Result<ExitCode> {
    let source = source(&args.host)?;
    let mut control = control(&source)?;
    control.disarm().map_err(explained)?;
    let readers = control.status().map_err(explained)?.readers;
    let told = ArmJson { host: source.host, armed: false, readers };
    output.tell(&told, || format!("{} is disarmed\n", told.host))?;
    Ok(ExitCode::from(GOOD))
}
