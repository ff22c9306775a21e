//! `fullbore transfers`: a queue of scans to be sent, and the runner that sends them.

use std::fmt::Display;
use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;

use anyhow::Context;
use clap::{Args as Arguments, Subcommand};
use fullbore_core::completeness::seconds;
use fullbore_core::name::ScanName;
use fullbore_core::units::{ByteRate, ByteSize};
use fullbore_recording::store;
use fullbore_recording::transfers::answers::{Added, Changed, RuleAnswer};
use fullbore_recording::transfers::carrier;
use fullbore_transfer::governor::{Governor, Window};
use fullbore_transfer::identity;
use fullbore_transfer::queue::carrier::ToFullbore;
use fullbore_transfer::queue::files::{self, Queue};
use fullbore_transfer::queue::job::{Job, JobState, Rule, Target, VERSION, Wishes};
use fullbore_transfer::queue::listing::{Listing, Row};
use fullbore_transfer::queue::runner::{self, RunnerEvent, RunnerSettings};
use fullbore_transfer::queue::scheduler::Slots;
use fullbore_transfer::queue::{QueueError, default_directory};
use serde::Serialize;

use super::{LinkArgs, send};
use crate::account_table::columns;
use crate::hint::explained;
use crate::output::{self, FOUND, GOOD, Output};
use crate::store_arg::StoreArg;

/// Queue transfers of scans to other sites, and run them.
///
///   fullbore transfers add r1234 fullbore://correlator --priority 5
///   fullbore transfers run
///
/// adds the scans of a session to the queue, and sends them. Without a verb,
/// transfers lists the queue. Transfers stay in it until they are done, whatever
/// ends in between: the runner continues where it was, and sends no block again
/// that is durable at the other end.
///
/// The highest priority goes first, and stops a transfer of a lower one. Transfers
/// of the same priority share --rate of the runner, first evenly between
/// destinations. A transfer that fails because the other end or the network is away
/// waits, and is tried again by itself.
///
/// A station (`fullbore serve`) of the same user runs the queue, too.
///
/// The queue is a directory of the user: transfers/ in $FULLBORE_STATE, else
/// fullbore/transfers/ in the user's state directory.
///
/// Exit codes: 0 the command succeeded; 1 a file of the queue cannot be used, or,
/// with run --once, a transfer failed or lacks blocks; 2 transfers could not run.
#[derive(Arguments, Debug)]
#[command(verbatim_doc_comment)]
pub struct Args {
    #[command(subcommand)]
    verb: Option<TransfersVerb>,
}

#[derive(Subcommand, Debug)]
enum TransfersVerb {
    /// List the transfers.
    Ls,
    /// Add scans to the queue. A scan that is being recorded is sent as it becomes durable.
    Add {
        /// The scans (SESSION_SCAN, or an unambiguous beginning of it), or a session for all of its scans.
        #[arg(required = true, value_name = "SCAN")]
        scan: Vec<String>,
        /// The other site: fullbore://HOST[:PORT], or an invitation.
        #[arg(required = true, value_name = "DESTINATION", value_parser = carrier::target)]
        destination: Target,
        #[command(flatten)]
        wishes: WishesArgs,
        #[command(flatten)]
        store: StoreArg,
    },
    /// Remove transfers from the queue. What is at the other end stays there.
    Rm {
        /// The numbers of the transfers.
        #[arg(value_name = "ID", required_unless_present = "done")]
        id: Vec<u64>,
        /// Remove all transfers that are done.
        #[arg(long)]
        done: bool,
    },
    /// Stop transfers until `resume`.
    Pause {
        /// The numbers of the transfers.
        #[arg(value_name = "ID", required = true)]
        id: Vec<u64>,
    },
    /// Continue transfers that are paused, that failed, or that wait for their next attempt.
    Resume {
        /// The numbers of the transfers.
        #[arg(value_name = "ID", required = true)]
        id: Vec<u64>,
    },
    /// Change transfers, also while they run.
    Set {
        /// The numbers of the transfers.
        #[arg(value_name = "ID", required = true)]
        id: Vec<u64>,
        /// A higher number goes first.
        #[arg(long, value_name = "N", allow_negative_numbers = true, required_unless_present_any = ["rate", "window"])]
        priority: Option<i32>,
        /// The most that each may send, for example 2Gbit/s; or none.
        #[arg(long, value_name = "RATE|none")]
        rate: Option<OrNone<ByteRate>>,
        /// The time of day in which each may send, UTC: 22:00-06:00; or none.
        #[arg(long, value_name = "FROM-UNTIL|none")]
        window: Option<OrNone<Window>>,
    },
    /// Run the transfers of the queue, until Ctrl-C or TERM.
    Run(RunArgs),
    /// Make transfers of all sealed scans of some sessions, or list what makes them.
    Rules {
        #[command(subcommand)]
        verb: Option<RulesVerb>,
    },
}

/// How a transfer of the queue is to run.
#[derive(Arguments, Debug)]
struct WishesArgs {
    /// A higher number goes first.
    #[arg(long, value_name = "N", default_value_t = 0, allow_negative_numbers = true)]
    priority: i32,
    /// The most that each of these transfers may send, for example 2Gbit/s.
    #[arg(long, value_name = "RATE")]
    rate: Option<ByteRate>,
    /// The time of day in which they may send, UTC: 22:00-06:00.
    #[arg(long, value_name = "FROM-UNTIL")]
    window: Option<Window>,
}

impl From<WishesArgs> for Wishes {
    fn from(args: WishesArgs) -> Self {
        let WishesArgs { priority, rate, window } = args;
        Self { priority, rate: rate.map(|it| it.0), window }
    }
}

#[derive(Arguments, Debug)]
struct RunArgs {
    /// How many transfers run at once.
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = slots)]
    parallel: u16,
    /// How many of these go to the same destination.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = slots)]
    per_destination: u16,
    /// End when all transfers are done, failed or paused.
    #[arg(long)]
    once: bool,
    #[command(flatten)]
    link: LinkArgs,
    #[command(flatten)]
    store: StoreArg,
}

fn slots(text: &str) -> Result<u16, String> {
    let number = text.parse().ok().filter(|it| (1..=64).contains(it));
    number.ok_or_else(|| "a number from 1 to 64".to_owned())
}

#[derive(Subcommand, Debug)]
enum RulesVerb {
    /// List the rules.
    Ls,
    /// Add a rule: the runner makes a transfer of each scan of these sessions when it is sealed, and of those sealed before. A scan with a receipt of the destination needs none.
    Add {
        /// The names of sessions, with * and ?: 'r1*'.
        #[arg(value_name = "SESSIONS")]
        sessions: String,
        /// The other site: fullbore://HOST[:PORT], or an invitation.
        #[arg(value_name = "DESTINATION", value_parser = carrier::target)]
        destination: Target,
        #[command(flatten)]
        wishes: WishesArgs,
        #[command(flatten)]
        store: StoreArg,
    },
    /// Remove rules. Their transfers stay.
    Rm {
        /// The numbers of the rules.
        #[arg(value_name = "ID", required = true)]
        id: Vec<u64>,
    },
}

/// A value, or `none` to remove it.
#[derive(Clone, Copy, Debug)]
struct OrNone<T>(Option<T>);

impl<T: FromStr> FromStr for OrNone<T> {
    type Err = T::Err;

    fn from_str(text: &str) -> Result<Self, T::Err> {
        if text == "none" { Ok(Self(None)) } else { text.parse().map(|it| Self(Some(it))) }
    }
}

/// Runs the command.
pub fn run(args: Args, output: Output) -> anyhow::Result<ExitCode> {
    match args.verb.unwrap_or(TransfersVerb::Ls) {
        TransfersVerb::Ls => list(output),
        TransfersVerb::Add { scan, destination, wishes, store } => {
            let members = store.members()?;
            let scans = send::scans(&members, &scan)?;
            add(members, scans, destination, wishes.into(), output)
        }
        TransfersVerb::Rm { id, done } => remove(id, done, output),
        TransfersVerb::Pause { id } => edit(&id, output, "paused", |job| job.paused = true),
        TransfersVerb::Resume { id } => edit(&id, output, "resumed", |job| {
            job.paused = false;
            job.resumed += 1;
        }),
        TransfersVerb::Set { id, priority, rate, window } => edit(&id, output, "changed", |job| {
            let wishes = &mut job.wishes;
            wishes.priority = priority.unwrap_or(wishes.priority);
            wishes.rate = rate.map_or(wishes.rate, |OrNone(rate)| rate.map(|it| it.0));
            wishes.window = window.map_or(wishes.window, |OrNone(window)| window);
        }),
        TransfersVerb::Run(args) => run_queue(args, output),
        TransfersVerb::Rules { verb } => rules(verb.unwrap_or(RulesVerb::Ls), output),
    }
}

fn queue() -> anyhow::Result<Queue> {
    let directory = default_directory().map_err(explained)?;
    Queue::open(&directory).map_err(explained)
}

/// The members as other processes find them.
fn absolute(members: Vec<PathBuf>) -> anyhow::Result<Vec<PathBuf>> {
    store::check_to_write(&members).map_err(explained)?;
    let absolute = |it: PathBuf| {
        it.canonicalize().with_context(|| format!("{}: cannot be found", it.display()))
    };
    members.into_iter().map(absolute).collect()
}

/// Adds scans to the queue.
pub fn add(
    members: Vec<PathBuf>,
    scans: Vec<ScanName>,
    target: Target,
    wishes: Wishes,
    output: Output,
) -> anyhow::Result<ExitCode> {
    let (queue, store) = (queue()?, absolute(members)?);
    let job = |scan| Job {
        version: VERSION,
        scan,
        store: store.clone(),
        target: target.clone(),
        wishes: wishes.clone(),
        paused: false,
        removed: false,
        resumed: 0,
        rule: None,
        added: files::now(),
    };
    let added = queue.add(scans.into_iter().map(job).collect()).map_err(explained)?;
    let told: Vec<Added> = added.into_iter().map(Added::from).collect();
    output.tell(&told, || told.iter().map(added_text).collect())?;
    tell_of_runner(&queue, output)?;
    Ok(ExitCode::from(GOOD))
}

fn added_text(added: &Added) -> String {
    let Added { id, scan, to, new } = added;
    let what = if *new { "added" } else { "is in the queue already" };
    format!("{id}: {scan} to {to}, {what}\n")
}

fn tell_of_runner(queue: &Queue, output: Output) -> anyhow::Result<()> {
    if !output.json && queue.runner().map_err(explained)?.is_none() {
        output::say("no runner runs: start it with `fullbore transfers run`");
    }
    Ok(())
}

fn list(output: Output) -> anyhow::Result<ExitCode> {
    let listing = Listing::read(&queue()?).map_err(explained)?;
    output.tell(&listing, || text(&listing))?;
    if !output.json && listing.lacks_runner() {
        output::say("no runner runs: start it with `fullbore transfers run`");
    }
    for problem in &listing.problems {
        output::complain(None, &problem.to_string());
    }
    Ok(ExitCode::from(if listing.problems.is_empty() { GOOD } else { FOUND }))
}

fn text(listing: &Listing) -> String {
    if listing.transfers.is_empty() {
        return "no transfers\n".into();
    }
    let heading =
        ["id", "scan", "to", "state", "priority", "done", "of", "rate", "left", "attempts"];
    let mut rows = vec![heading.map(str::to_owned).to_vec()];
    rows.extend(listing.transfers.iter().map(row));
    let mut text = columns(&rows, 4);
    for row in &listing.transfers {
        for remark in remarks(row) {
            text += &format!("{}: {remark}\n", row.id);
        }
    }
    text
}

fn row(row: &Row) -> Vec<String> {
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".into());
    let known = row.bytes > 0 || row.state == JobState::Done;
    vec![
        row.id.to_string(),
        row.scan.clone(),
        row.to.clone(),
        row.state.to_string(),
        row.priority.to_string(),
        or_dash(known.then(|| ByteSize(row.done_bytes).to_string())),
        or_dash(known.then(|| ByteSize(row.bytes).to_string())),
        or_dash((row.rate > 0).then(|| ByteRate(row.rate).to_string())),
        or_dash(row.eta_seconds.map(|left| seconds(left as i64 * 1_000_000_000))),
        row.attempts.to_string(),
    ]
}

fn remarks(row: &Row) -> Vec<String> {
    let mut remarks: Vec<String> = row.reason.iter().cloned().collect();
    if let (JobState::Failed, Some(error)) = (row.state, &row.last_error) {
        remarks.push(error.clone());
    }
    if row.missing_blocks > 0 {
        let blocks = output::count(row.missing_blocks as usize, "block");
        remarks.push(format!("without {blocks} that could not be read here"));
    }
    remarks
}

fn tell_changed(
    changed: &[Changed],
    what: impl Display,
    output: Output,
) -> anyhow::Result<ExitCode> {
    let text = |it: &Changed| format!("{}: {} to {} is {what}\n", it.id, it.scan, it.to);
    output.tell(&changed, || changed.iter().map(text).collect())?;
    Ok(ExitCode::from(GOOD))
}

fn remove(mut ids: Vec<u64>, done: bool, output: Output) -> anyhow::Result<ExitCode> {
    let queue = queue()?;
    if done {
        let listed = Listing::read(&queue).map_err(explained)?.transfers;
        let over = listed.iter().filter(|row| row.state == JobState::Done);
        ids.extend(over.map(|row| row.id));
        ids.sort_unstable();
        ids.dedup();
    }
    let mut removed = Vec::new();
    for id in ids {
        removed.push(Changed::of(id, &queue.remove(id).map_err(explained)?));
    }
    tell_changed(&removed, "removed", output)
}

fn edit(
    ids: &[u64],
    output: Output,
    what: &str,
    change: impl Fn(&mut Job),
) -> anyhow::Result<ExitCode> {
    let queue = queue()?;
    let mut changed = Vec::new();
    for id in ids {
        changed.push(Changed::of(*id, &queue.edit(*id, &change).map_err(explained)?));
    }
    tell_changed(&changed, what, output)
}

fn rule_text(rule: &RuleAnswer) -> String {
    let RuleAnswer { id, sessions, to, priority, .. } = rule;
    let mut text = format!("{id}: {sessions} to {to}, priority {priority}");
    if let Some(rate) = rule.rate_limit {
        text += &format!(", at most {}", ByteRate(rate));
    }
    if let Some(window) = &rule.window {
        text += &format!(", {window} UTC");
    }
    text + "\n"
}

fn rules(verb: RulesVerb, output: Output) -> anyhow::Result<ExitCode> {
    let queue = queue()?;
    let told: Vec<RuleAnswer> = match verb {
        RulesVerb::Ls => {
            let listed = queue.rules().map_err(explained)?;
            listed.items.into_iter().map(|(id, rule)| RuleAnswer::of(id, rule)).collect()
        }
        RulesVerb::Add { sessions, destination, wishes, store } => {
            let rule = Rule {
                version: VERSION,
                sessions,
                store: absolute(store.members()?)?,
                target: destination,
                wishes: wishes.into(),
                added: files::now(),
            };
            let id = queue.add_rule(&rule).map_err(explained)?;
            tell_of_runner(&queue, output)?;
            vec![RuleAnswer::of(id, rule)]
        }
        RulesVerb::Rm { id } => {
            let remove = |id| queue.remove_rule(id).map(|rule| RuleAnswer::of(id, rule));
            id.into_iter().map(remove).collect::<Result<_, QueueError>>().map_err(explained)?
        }
    };
    output.tell(&told, || match told.is_empty() {
        true => "no rules\n".into(),
        false => told.iter().map(rule_text).collect(),
    })?;
    Ok(ExitCode::from(GOOD))
}

#[derive(Serialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
enum RunnerJson<'a> {
    Running,
    Started { id: u64, scan: String, to: &'a str, attempt: u32 },
    Done { id: u64, scan: String, to: &'a str, bytes: u64, missing_blocks: u64 },
    Interrupted { id: u64, scan: String, to: &'a str, why: &'a str },
    Failed { id: u64, scan: String, to: &'a str, why: &'a str },
    Ruled { id: u64, scan: String, to: &'a str },
    Problem { why: &'a str },
}

fn run_queue(args: RunArgs, output: Output) -> anyhow::Result<ExitCode> {
    let queue = queue()?;
    let carrier = carrier::ByScheme {
        fullbore: ToFullbore {
            config: identity::default_directory().map_err(explained)?,
            link: args.link.settings(),
        },
    };
    let slots = Slots { all: args.parallel.into(), per_destination: args.per_destination.into() };
    let settings = RunnerSettings { slots, once: args.once };
    let stop = crate::signals::stop_handle()?;
    let governor = Governor::start_on(args.link.limits(), &args.store.members()?);
    if !output.event(&RunnerJson::Running) {
        output::print_on("running the transfers of the queue; Ctrl-C stops\n");
    }
    let mut tell = |event: RunnerEvent| {
        if !output.event(&event_json(&event)) {
            output::print_on(&(event_text(&event) + "\n"));
        }
    };
    let ran = runner::run(&queue, settings, &governor, &carrier, &stop, &mut tell);
    let ran = ran.map_err(explained)?;
    Ok(ExitCode::from(if args.once && ran.failed > 0 { FOUND } else { GOOD }))
}

fn event_json(event: &RunnerEvent) -> RunnerJson<'_> {
    let scan = |job: &Job| job.scan.to_string();
    match event {
        RunnerEvent::Started(id, job, attempt) => {
            RunnerJson::Started { id: *id, scan: scan(job), to: &job.target.to, attempt: *attempt }
        }
        RunnerEvent::Done(id, job, delivered) => RunnerJson::Done {
            id: *id,
            scan: scan(job),
            to: &job.target.to,
            bytes: delivered.bytes,
            missing_blocks: delivered.missing_blocks,
        },
        RunnerEvent::Interrupted(id, job, why) => {
            RunnerJson::Interrupted { id: *id, scan: scan(job), to: &job.target.to, why }
        }
        RunnerEvent::Failed(id, job, why) => {
            RunnerJson::Failed { id: *id, scan: scan(job), to: &job.target.to, why }
        }
        RunnerEvent::Ruled(id, job) => {
            RunnerJson::Ruled { id: *id, scan: scan(job), to: &job.target.to }
        }
        RunnerEvent::Problem(why) => RunnerJson::Problem { why },
    }
}

fn event_text(event: &RunnerEvent) -> String {
    let of = |id: &u64, job: &Job| format!("{id}: {} to {}", job.scan, job.target.to);
    match event {
        RunnerEvent::Started(id, job, 1) => format!("{} starts", of(id, job)),
        RunnerEvent::Started(id, job, attempt) => {
            format!("{} continues, attempt {attempt}", of(id, job))
        }
        RunnerEvent::Done(id, job, delivered) => {
            let missing = match delivered.missing_blocks {
                0 => String::new(),
                blocks => format!(", without {}", output::count(blocks as usize, "block")),
            };
            format!("{} is complete: {}{missing}", of(id, job), ByteSize(delivered.bytes))
        }
        RunnerEvent::Interrupted(id, job, why) => format!("{} waits: {why}", of(id, job)),
        RunnerEvent::Failed(id, job, why) => format!("{} failed: {why}", of(id, job)),
        RunnerEvent::Ruled(id, job) => format!("{} is added by a rule", of(id, job)),
        RunnerEvent::Problem(why) => format!("fullbore: {why}"),
    }
}
