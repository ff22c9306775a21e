//! The daemon that serves a store of this host, for commands that would collide with it.

use std::path::PathBuf;
use std::time::Duration;

use fullbore_client::status::name_of;
use fullbore_client::{Address, Client};
use fullbore_daemon::Config;
use fullbore_recording::store;
use serde_json::Value;

/// What the daemon of a store records now: the name of each scan, and its sources.
pub fn recordings(members: &[PathBuf]) -> Vec<(String, Vec<String>)> {
    let Some(socket) = Config::socket_of(members).filter(|it| it.exists()) else {
        return Vec::new();
    };
    // A daemon that does not respond keeps nothing from being done here.
    let asked = Client::with_token(&Address::Unix(socket), None)
        .and_then(|client| client.get_within("/api/v1/recordings", Duration::from_secs(2)));
    let Ok(Value::Array(found)) = asked else { return Vec::new() };
    let active = found.iter().filter(|it| it["phase"] != "ended" && it["scan"].is_object());
    let sources = |it: &Value| {
        let listed = it["request"]["source"].as_array().into_iter().flatten();
        listed.filter_map(|it| it.as_str().map(str::to_owned)).collect()
    };
    active.map(|it| (name_of(&it["scan"]), sources(it))).collect()
}

/// What to do about a scan that the daemon of the store records, if it does.
pub fn advice_on(members: &[PathBuf], scan: &str) -> Option<String> {
    let (scan, _) = recordings(members).into_iter().find(|(name, _)| name == scan)?;
    let named = named(members);
    Some(format!("the daemon of this store records it: `fullbore stop {scan} {named}` ends it"))
}

/// The options by which `stop` finds the daemon of a store.
fn named(members: &[PathBuf]) -> String {
    let is_usual = store::default_members().is_ok_and(|usual| usual == members);
    let listed: Vec<String> = members.iter().map(|it| it.display().to_string()).collect();
    match is_usual {
        true => "--station unix:".to_owned(),
        false => format!("--station unix: --store {}", listed.join(",")),
    }
}

/// What the daemon of the store records, if a recording could not begin here.
pub fn advice_on_ports(members: &[PathBuf]) -> Option<String> {
    let all = recordings(members);
    let listed: Vec<String> =
        all.iter().map(|(scan, sources)| format!("{scan} from {}", sources.join(", "))).collect();
    (!listed.is_empty()).then(|| {
        let (listed, named) = (listed.join("; "), named(members));
        format!("the daemon of this store records {listed}: `fullbore stop SCAN {named}` ends one")
    })
}
