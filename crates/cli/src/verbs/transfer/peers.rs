//! `fullbore peers`: the sites that this one exchanges scans with.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args as Arguments, Subcommand};
use fullbore_core::hint;
use fullbore_linux::clock::Clock;
use fullbore_recording::transfers::answers::{InvitationAnswer, OpenAnswer, PeerAnswer, Sites};
use fullbore_transfer::channel::LinkSettings;
use fullbore_transfer::connect::{Client, ClientSettings};
use fullbore_transfer::governor::Limits;
use fullbore_transfer::identity::{
    self, DEFAULT_PORT, Destination, Identity, Invitation, Peers, Permissions, open_invitations,
};

use crate::hint::explained;
use crate::output::{self, GOOD, Output, REFUSED};
use crate::verbs::sending;

/// Make sites known to each other, and list them.
///
///   fullbore peers invite correlator.example.org
///
/// prints an invitation. Give it to the other site, which uses it as the destination
/// of `fullbore send` (or of `fullbore receive --from`) once. Then both sites know
/// each other's key, and no other end is trusted in its place.
///
/// Each site has a name here, which no other one has: --name gives it, otherwise its
/// host does. The name also stands for its address: fullbore://NAME.
///
/// Keys, peers and invitations are files in $FULLBORE_CONFIG, else in fullbore/ of
/// the user's configuration directory.
#[derive(Arguments, Debug)]
#[command(verbatim_doc_comment)]
pub struct Args {
    #[command(subcommand)]
    verb: Option<PeersVerb>,
}

#[derive(Subcommand, Debug)]
enum PeersVerb {
    /// List the known sites and the open invitations.
    Ls,
    /// Print an invitation, which one site can use once.
    Invite {
        /// The address under which the other site reaches this one: HOST[:PORT].
        #[arg(value_name = "HOST[:PORT]")]
        address: String,
        /// The name that the other site gets here. [default: the name of its host]
        #[arg(long)]
        name: Option<String>,
        /// The other site may fetch scans from here.
        #[arg(long)]
        fetch: bool,
        /// The other site may send scans to here. [default: unless --fetch is given]
        #[arg(long)]
        send: bool,
        /// The invitation is valid for this time.
        #[arg(long, value_name = "TIME", default_value = "24h", value_parser = sending::duration)]
        lifetime: Duration,
    },
    /// Use an invitation, without sending anything yet.
    Accept {
        /// The invitation.
        #[arg(value_name = "INVITATION")]
        invitation: Invitation,
        /// The name that the other site gets here. [default: the name of its host]
        #[arg(long)]
        name: Option<String>,
    },
    /// Give a site another name here.
    Rename {
        /// The name or key of the site.
        #[arg(value_name = "NAME")]
        from: String,
        /// The new name, which no other site may have.
        #[arg(value_name = "NEW")]
        to: String,
    },
    /// Forget a site, or withdraw an invitation.
    Rm {
        /// The name or key of the site, or the number of the invitation.
        #[arg(value_name = "NAME")]
        name: String,
    },
    /// Print the key of this site.
    Key,
}

/// Runs the command.
pub fn run(args: Args, output: Output) -> anyhow::Result<ExitCode> {
    let directory = identity::default_directory().map_err(explained)?;
    let key = Identity::load_or_create(&directory).map_err(explained)?.fingerprint();
    match args.verb.unwrap_or(PeersVerb::Ls) {
        PeersVerb::Ls => {
            let peers = Peers::load(&directory).map_err(explained)?;
            let open = open_invitations(&directory).map_err(explained)?;
            let list = Sites {
                key: key.to_string(),
                peers: peers.iter().map(PeerAnswer::from).collect(),
                invitations: open.iter().map(OpenAnswer::from).collect(),
            };
            output.tell(&list, || text(&list))?;
        }
        PeersVerb::Invite { address, name, fetch, send, lifetime } => {
            let may = Permissions { send: send || !fetch, fetch };
            let name = name.as_deref();
            let made = identity::invite(&directory, &address, key, may, lifetime, name);
            let invitation = match made {
                Ok(invitation) => invitation,
                Err(error) => return Ok(refused(&error)),
            };
            let lifetime_ns = i64::try_from(lifetime.as_nanos()).unwrap_or(i64::MAX / 4);
            let expires = Clock::new().now().plus_ns(lifetime_ns).to_string();
            let (invitation, key) = (invitation.to_string(), key.to_string());
            let json = InvitationAnswer { invitation, key, expires };
            output.tell(&json, || format!("{}\n", json.invitation))?;
            if !output.json {
                output::say(format_args!("valid until {}, once", json.expires));
            }
        }
        PeersVerb::Accept { invitation, name } => {
            let client = Client::new(known_by(invitation), nothing_sent(directory));
            let accepted = client.and_then(|client| client.accept(name.as_deref()));
            match accepted {
                Ok(peer) => {
                    output
                        .tell(&PeerAnswer::from(&peer), || format!("{} is known\n", peer.name))?;
                }
                Err(error) => return Ok(refused(&error)),
            }
        }
        PeersVerb::Rename { from, to } => match identity::rename(&directory, &from, &to) {
            Ok(peer) => output
                .tell(&PeerAnswer::from(&peer), || format!("{from} is now {}\n", peer.name))?,
            Err(error) => return Ok(refused(&error)),
        },
        PeersVerb::Rm { name } => {
            if identity::withdraw(&directory, &name).map_err(explained)? {
                output.tell(&name, || format!("the invitation {name} is withdrawn\n"))?;
                return Ok(ExitCode::from(GOOD));
            }
            let removed = match identity::remove(&directory, &name) {
                Ok(peer) => peer,
                Err(error) => return Ok(refused(&error)),
            };
            output
                .tell(&PeerAnswer::from(&removed), || format!("{} is forgotten\n", removed.name))?;
        }
        PeersVerb::Key => output.tell(&key.to_string(), || format!("{key}\n"))?,
    }
    Ok(ExitCode::from(GOOD))
}

/// Says why it is refused.
fn refused<E: std::error::Error + hint::Hint>(error: &E) -> ExitCode {
    output::complain(None, &hint::explained(error));
    ExitCode::from(REFUSED)
}

fn known_by(invitation: Invitation) -> Destination {
    Destination { address: invitation.address.clone(), invitation: Some(invitation) }
}

/// The settings of a connection on which nothing is sent.
fn nothing_sent(config: PathBuf) -> ClientSettings {
    ClientSettings {
        members: Vec::new(),
        config,
        connections: None,
        limits: Limits::default(),
        link: LinkSettings { congestion: None, rate: None },
        patience: Duration::ZERO,
    }
}

fn text(list: &Sites) -> String {
    let mut text = format!("this site   key {}\n", list.key);
    for peer in &list.peers {
        let may = may(peer.may_send, peer.may_fetch);
        let address = peer.address.as_deref().unwrap_or("connects to here");
        text += &format!("{:<11} {address}, {may}, key {}\n", peer.name, peer.key);
    }
    for open in &list.invitations {
        let may = may(open.may_send, open.may_fetch);
        text += &format!(
            "invitation  {} to {}, until {}, {may}\n",
            open.id, open.address, open.expires
        );
    }
    if list.peers.is_empty() && list.invitations.is_empty() {
        text += &format!(
            "no site is known: `fullbore peers invite HOST` makes one known; the default port is {DEFAULT_PORT}\n"
        );
    }
    text
}

fn may(send: bool, fetch: bool) -> &'static str {
    match (send, fetch) {
        (true, true) => "may send and fetch",
        (true, false) => "may send",
        (false, true) => "may fetch",
        (false, false) => "no rights here",
    }
}
