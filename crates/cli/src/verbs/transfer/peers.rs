//! `fullbore peers`: the sites that this one exchanges scans with.

use std::process::ExitCode;
use std::time::Duration;

use clap::{Args as Arguments, Subcommand};
use fullbore_core::hint;
use fullbore_linux::clock::Clock;
use fullbore_transfer::identity::{
    self, DEFAULT_PORT, Identity, Peer, Peers, Permissions, open_invitations,
};
use serde::Serialize;

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
    /// Forget a site, or withdraw an invitation.
    Rm {
        /// The name or key of the site, or the number of the invitation.
        #[arg(value_name = "NAME")]
        name: String,
    },
    /// Print the key of this site.
    Key,
}

#[derive(Serialize)]
struct PeerJson {
    name: String,
    key: String,
    address: Option<String>,
    may_send: bool,
    may_fetch: bool,
    added: String,
}

#[derive(Serialize)]
struct OpenJson {
    id: String,
    address: String,
    expires: String,
    may_send: bool,
    may_fetch: bool,
}

#[derive(Serialize)]
struct ListJson {
    key: String,
    peers: Vec<PeerJson>,
    invitations: Vec<OpenJson>,
}

#[derive(Serialize)]
struct InvitationJson {
    invitation: String,
    key: String,
    expires: String,
}

/// Runs the command.
pub fn run(args: Args, output: Output) -> anyhow::Result<ExitCode> {
    let directory = identity::default_directory().map_err(explained)?;
    let key = Identity::load_or_create(&directory).map_err(explained)?.fingerprint();
    match args.verb.unwrap_or(PeersVerb::Ls) {
        PeersVerb::Ls => {
            let peers = Peers::load(&directory).map_err(explained)?;
            let open = open_invitations(&directory).map_err(explained)?;
            let list = ListJson {
                key: key.to_string(),
                peers: peers.iter().map(peer_json).collect(),
                invitations: open
                    .iter()
                    .map(|it| OpenJson {
                        id: it.id.clone(),
                        address: it.address.clone(),
                        expires: it.expires.to_string(),
                        may_send: it.may.send,
                        may_fetch: it.may.fetch,
                    })
                    .collect(),
            };
            output.tell(&list, || text(&list))?;
        }
        PeersVerb::Invite { address, fetch, send, lifetime } => {
            let may = Permissions { send: send || !fetch, fetch };
            let made = identity::invite(&directory, &address, key, may, lifetime);
            let invitation = made.map_err(explained)?;
            let lifetime_ns = i64::try_from(lifetime.as_nanos()).unwrap_or(i64::MAX / 4);
            let expires = Clock::new().now().plus_ns(lifetime_ns).to_string();
            let (invitation, key) = (invitation.to_string(), key.to_string());
            let json = InvitationJson { invitation, key, expires };
            output.tell(&json, || format!("{}\n", json.invitation))?;
            if !output.json {
                output::say(format_args!("valid until {}, once", json.expires));
            }
        }
        PeersVerb::Rm { name } => {
            if identity::withdraw(&directory, &name).map_err(explained)? {
                output.tell(&name, || format!("the invitation {name} is withdrawn\n"))?;
                return Ok(ExitCode::from(GOOD));
            }
            let removed = match identity::remove(&directory, &name) {
                Ok(peer) => peer,
                Err(error) => {
                    output::say(format_args!("fullbore: {}", hint::explained(&error)));
                    return Ok(ExitCode::from(REFUSED));
                }
            };
            output.tell(&peer_json(&removed), || format!("{} is forgotten\n", removed.name))?;
        }
        PeersVerb::Key => output.tell(&key.to_string(), || format!("{key}\n"))?,
    }
    Ok(ExitCode::from(GOOD))
}

fn peer_json(peer: &Peer) -> PeerJson {
    PeerJson {
        name: peer.name.clone(),
        key: peer.fingerprint.to_string(),
        address: peer.address.clone(),
        may_send: peer.may.send,
        may_fetch: peer.may.fetch,
        added: peer.added.to_string(),
    }
}

fn text(list: &ListJson) -> String {
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
