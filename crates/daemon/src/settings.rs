//! What can change while the daemon serves: who may do what, the named inputs, and the limits.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use crate::auth::tokens::Tokens;
use crate::auth::{Identity, Role};
use crate::net::Patience;
use crate::net::table::Limits;
use crate::recorder::request::{INPUT, MOST_SOURCES, StartRequest};

/// Limits of connections if nothing else is said.
pub const LIMITS: Limits = Limits { total: 256, each: 64 };

/// How long a client may take if nothing else is said.
pub const PATIENCE: Patience =
    Patience { head: Duration::from_secs(10), body: Duration::from_secs(10) };

/// A user of this host, over the Unix socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// The name in the audit log.
    pub name: Arc<str>,
    /// The number of the user.
    pub uid: u32,
    /// What the user may do.
    pub role: Role,
}

/// The settings.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The tokens of programs.
    pub tokens: Tokens,
    /// The users of the Unix socket.
    pub users: Vec<User>,
    /// The role of every other user who can open the Unix socket.
    pub others: Option<Role>,
    /// Names by which browsers reach the daemon from other hosts.
    pub names: Vec<String>,
    /// The endpoints of each input.
    pub inputs: BTreeMap<String, Vec<String>>,
    /// True if requests may name inputs only, and no endpoints.
    pub inputs_only: bool,
    /// The directory for files that clients let the station make.
    pub exports: Option<PathBuf>,
    /// Limits of connections.
    pub limits: Limits,
    /// How long a client may take.
    pub patience: Patience,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            tokens: Tokens::default(),
            users: Vec::new(),
            others: None,
            names: Vec::new(),
            inputs: BTreeMap::new(),
            inputs_only: false,
            exports: None,
            limits: LIMITS,
            patience: PATIENCE,
        }
    }
}

/// A request does not fit the inputs of the station.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InputError {
    /// No such input.
    #[error("source: there is no input `{name}`; there {}", listed(.known))]
    Unknown {
        /// The name.
        name: String,
        /// The inputs.
        known: Vec<String>,
    },
    /// The station takes inputs only.
    #[error("source: this station records its inputs only, and `{shown}` is none")]
    Only {
        /// The beginning of the source.
        shown: String,
    },
    /// Too many sources.
    #[error("source: {count} sources are given, and a recording has at most {MOST_SOURCES}")]
    Many {
        /// The number.
        count: usize,
    },
}

fn listed(known: &[String]) -> String {
    match known.is_empty() {
        true => "is none".to_owned(),
        false => format!("are {}", known.join(", ")),
    }
}

impl Settings {
    /// The endpoints of a request, in which each input is replaced by its own.
    pub fn endpoints(&self, request: &StartRequest) -> Result<Vec<String>, InputError> {
        let mut endpoints = Vec::new();
        for source in &request.source {
            match source.strip_prefix(INPUT) {
                Some(name) => endpoints.extend_from_slice(self.input(name)?),
                None if self.inputs_only => {
                    let shown = source.chars().take(40).collect();
                    return Err(InputError::Only { shown });
                }
                None => endpoints.push(source.clone()),
            }
        }
        match endpoints.len() {
            count if count > MOST_SOURCES => Err(InputError::Many { count }),
            _ => Ok(endpoints),
        }
    }

    fn input(&self, name: &str) -> Result<&[String], InputError> {
        self.inputs.get(name).map(Vec::as_slice).ok_or_else(|| InputError::Unknown {
            name: name.chars().take(40).collect(),
            known: self.inputs.keys().cloned().collect(),
        })
    }

    /// Who a user of the Unix socket is. root and the daemon's own user are admins.
    pub fn user(&self, uid: u32) -> Option<Identity> {
        let own = rustix::process::getuid().as_raw();
        let listed = self.users.iter().find(|it| it.uid == uid);
        let name = listed.map_or_else(|| Arc::from(format!("uid-{uid}")), |it| it.name.clone());
        let role = match listed {
            Some(user) => Some(user.role),
            None if uid == 0 || uid == own => Some(Role::Admin),
            None => self.others,
        };
        Some(Identity { name, role: role? })
    }
}

/// The settings in force. Clones are handles of the same.
#[derive(Clone, Debug, Default)]
pub struct Current(Arc<RwLock<Arc<Settings>>>);

impl Current {
    /// These.
    pub fn new(settings: Settings) -> Self {
        Self(Arc::new(RwLock::new(Arc::new(settings))))
    }

    /// Those of now.
    pub fn get(&self) -> Arc<Settings> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces them. A request that is being answered keeps the old ones.
    pub fn set(&self, settings: Settings) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(settings);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(sources: &[&str]) -> StartRequest {
        let source = sources.iter().map(|it| (*it).to_owned()).collect();
        StartRequest { source, ..StartRequest::default() }
    }

    #[test]
    fn an_input_stands_for_its_endpoints() {
        let mut settings = Settings::default();
        let both = vec!["udp://:1".to_owned(), "udp://:2".to_owned()];
        settings.inputs.insert("vlbi".to_owned(), both);
        let endpoints = settings.endpoints(&request(&["input:vlbi", "udp://:3"])).unwrap();
        assert_eq!(endpoints, ["udp://:1", "udp://:2", "udp://:3"]);
        let error = settings.endpoints(&request(&["input:x"])).unwrap_err().to_string();
        assert_eq!(error, "source: there is no input `x`; there are vlbi");
        settings.inputs_only = true;
        assert!(matches!(
            settings.endpoints(&request(&["udp://:3"])),
            Err(InputError::Only { .. })
        ));
        settings.inputs.insert("all".to_owned(), vec!["udp://:1".to_owned(); MOST_SOURCES + 1]);
        assert!(matches!(
            settings.endpoints(&request(&["input:all"])),
            Err(InputError::Many { .. })
        ));
    }

    #[test]
    fn a_user_of_the_socket_has_its_role() {
        let user = User { name: "oper".into(), uid: 4_000_000, role: Role::Operator };
        let mut settings = Settings { users: vec![user], ..Settings::default() };
        let role = |settings: &Settings, uid| settings.user(uid).map(|it| it.role);
        assert_eq!(role(&settings, 4_000_000), Some(Role::Operator));
        assert_eq!(role(&settings, 4_000_001), None);
        assert_eq!(role(&settings, 0), Some(Role::Admin));
        settings.others = Some(Role::Viewer);
        assert_eq!(role(&settings, 4_000_001), Some(Role::Viewer));
        assert_eq!(&*settings.user(4_000_001).unwrap().name, "uid-4000001");
    }
}
