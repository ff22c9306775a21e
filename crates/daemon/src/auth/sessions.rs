//! Sessions of browsers, which outlive the daemon: an operator whose daemon was restarted stays logged in.
//!
//! The file has hashes of cookies and tokens only, and is readable by its owner only. It is written without the lock that
//! requests take to find their session, because its disk may be slow.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use super::tokens::Tokens;
use super::{Hash, Identity, Role, new_secret};

/// How long a session lasts.
pub const LASTS: Duration = Duration::from_secs(30 * 86_400);

/// How long a login link can be used.
pub const LINK_LASTS: Duration = Duration::from_secs(86_400);

/// Sessions at once. The oldest goes for a new one.
pub const MOST_SESSIONS: usize = 200;

/// Login links that wait at once. The oldest goes for a new one.
const MOST_LINKS: usize = 10;

/// The name of a session that a login link has opened. No token has it.
pub const CONSOLE: &str = "console";

/// The sessions, and the login links that were not used yet.
#[derive(Debug)]
pub struct Sessions {
    path: PathBuf,
    state: Mutex<State>,
    /// Held while the file is written, so that the newest state is written last.
    saving: Mutex<()>,
}

#[derive(Debug)]
struct State {
    sessions: BTreeMap<Hash, Session>,
    links: Vec<(Hash, SystemTime)>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Session {
    name: String,
    role: Role,
    /// Seconds since 1970.
    until: u64,
    /// The hash of its token, if a token has opened it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    token: Option<Hash>,
}

/// What a browser gets at its login.
#[derive(Debug, PartialEq, Eq)]
pub struct Opened {
    /// The secret of the session.
    pub cookie: String,
    /// Who it is.
    pub identity: Identity,
}

impl Sessions {
    /// Opens the file; a file that cannot be read counts as empty, and only means a new login.
    pub fn open(path: &Path) -> Self {
        let text = fs::read(path).unwrap_or_default();
        let mut sessions: BTreeMap<Hash, Session> =
            serde_json::from_slice(&text).unwrap_or_default();
        while sessions.len() > MOST_SESSIONS {
            sessions.pop_first();
        }
        let (state, saving) = (State { sessions, links: Vec::new() }, Mutex::default());
        Self { path: path.to_owned(), state: Mutex::new(state), saving }
    }

    /// Makes a code that opens one session with the role of an admin.
    pub fn new_link(&self, now: SystemTime) -> io::Result<String> {
        let code = new_secret()?;
        let mut state = self.lock();
        if state.links.len() == MOST_LINKS {
            state.links.remove(0);
        }
        state.links.push((Hash::of(&code), now + LINK_LASTS));
        Ok(code)
    }

    /// Takes a code: it does not work again.
    pub fn use_link(&self, code: &str, now: SystemTime) -> Option<Identity> {
        let hash = Hash::of(code);
        let mut state = self.lock();
        let at = state.links.iter().position(|(link, until)| *link == hash && now < *until)?;
        state.links.remove(at);
        Some(Identity { name: Arc::from(CONSOLE), role: Role::Admin })
    }

    /// Opens a session. `token` is the hash of the token that proved who it is. If the disk of the file is full, the session
    /// ends with the daemon: whoever is to make room can log in.
    pub fn open_session(
        &self,
        identity: Identity,
        token: Option<Hash>,
        now: SystemTime,
    ) -> io::Result<Opened> {
        let cookie = new_secret()?;
        let now = seconds(now);
        let (name, role, until) = (identity.name.to_string(), identity.role, now + LASTS.as_secs());
        self.lock().add(Hash::of(&cookie), Session { name, role, until, token }, now);
        if let Err(error) = self.save() {
            tracing::error!(%error, path = %self.path.display(), "the next daemon will not know a session");
        }
        Ok(Opened { cookie, identity })
    }

    /// The client that has this cookie.
    pub fn find(&self, cookie: &str, now: SystemTime) -> Option<Identity> {
        let state = self.lock();
        let session = state.sessions.get(&Hash::of(cookie))?;
        let identity = || Identity { name: Arc::from(session.name.as_str()), role: session.role };
        (session.until > seconds(now)).then(identity)
    }

    /// Ends the sessions whose token is not there any more, or has another name, role or secret.
    pub fn keep_only(&self, tokens: &Tokens) -> io::Result<()> {
        let stays = |it: &Session| match &it.token {
            Some(token) => tokens.has(token, &it.name, it.role),
            None => it.name == CONSOLE,
        };
        let mut state = self.lock();
        let before = state.sessions.len();
        state.sessions.retain(|_, it| stays(it));
        let is_less = state.sessions.len() < before;
        drop(state);
        if is_less { self.save() } else { Ok(()) }
    }

    /// Ends a session.
    pub fn close(&self, cookie: &str) -> io::Result<()> {
        let closed = self.lock().sessions.remove(&Hash::of(cookie));
        closed.map_or(Ok(()), |_| self.save())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn save(&self) -> io::Result<()> {
        let _one = self.saving.lock().unwrap_or_else(PoisonError::into_inner);
        let text = serde_json::to_vec(&self.lock().sessions)?;
        let part = self.path.with_extension("part");
        let mut options = OpenOptions::new();
        let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&part)?;
        file.write_all(&text)?;
        file.sync_all()?;
        fs::rename(&part, &self.path)
    }
}

impl State {
    /// Adds a session. The oldest go, if there are too many.
    fn add(&mut self, cookie: Hash, session: Session, now: u64) {
        self.sessions.retain(|_, session| session.until > now);
        while self.sessions.len() >= MOST_SESSIONS {
            let oldest = self.sessions.iter().min_by_key(|(_, it)| it.until).map(|(hash, _)| *hash);
            oldest.map(|hash| self.sessions.remove(&hash));
        }
        self.sessions.insert(cookie, session);
    }
}

/// The value that a browser's scripts send with writes. It follows from the cookie, which another site cannot read.
pub fn csrf_of(cookie: &str) -> String {
    String::from(Hash::of(&format!("csrf {cookie}")))
}

fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |it| it.as_secs())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_link_works_once_and_not_for_ever() {
        let place = tempfile::tempdir().unwrap();
        let sessions = Sessions::open(&place.path().join("s.json"));
        let now = SystemTime::now();
        let (one, late) = (sessions.new_link(now).unwrap(), sessions.new_link(now).unwrap());
        assert_eq!(sessions.use_link("guess", now), None);
        assert_eq!(sessions.use_link(&one, now).unwrap().role, Role::Admin);
        assert_eq!(sessions.use_link(&one, now), None);
        assert_eq!(sessions.use_link(&late, now + LINK_LASTS), None);
    }

    #[test]
    fn a_session_outlives_the_daemon_and_ends_at_the_logout() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("s.json");
        let now = SystemTime::now();
        let who = Identity { name: Arc::from("fs"), role: Role::Operator };
        let cookie = Sessions::open(&path).open_session(who.clone(), None, now).unwrap().cookie;
        let next = Sessions::open(&path);
        assert_eq!(next.find(&cookie, now), Some(who));
        assert_eq!(next.find(&cookie, now + LASTS), None);
        assert_eq!(next.find(&csrf_of(&cookie), now), None);
        assert!(!fs::read_to_string(&path).unwrap().contains(&cookie));
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        next.close(&cookie).unwrap();
        assert_eq!(Sessions::open(&path).find(&cookie, now), None);
    }

    #[test]
    fn a_session_ends_with_its_token() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("s.json");
        let now = SystemTime::now();
        let sessions = Sessions::open(&path);
        let mut tokens = Tokens::default();
        assert!(tokens.add("fs", Role::Operator, Hash::of("secret")));
        assert!(!tokens.add(CONSOLE, Role::Viewer, Hash::of("other")));
        let open = |name: &str, role, secret: Option<&str>| {
            let who = Identity { name: Arc::from(name), role };
            sessions.open_session(who, secret.map(Hash::of), now).unwrap().cookie
        };
        let console = open(CONSOLE, Role::Admin, None);
        let kept = open("fs", Role::Operator, Some("secret"));
        let ended = [
            open("gone", Role::Viewer, Some("gone")),
            open("fs", Role::Admin, Some("secret")),
            // The secret of the token was replaced, because somebody else knows it.
            open("fs", Role::Operator, Some("known")),
            open("fs", Role::Operator, None),
        ];
        sessions.keep_only(&tokens).unwrap();
        let next = Sessions::open(&path);
        assert!(next.find(&console, now).is_some() && next.find(&kept, now).is_some());
        assert!(ended.iter().all(|it| next.find(it, now).is_none()));
    }

    #[test]
    fn the_oldest_session_goes_for_a_new_one() {
        let place = tempfile::tempdir().unwrap();
        let sessions = Sessions::open(&place.path().join("s.json"));
        let who = Identity { name: Arc::from("fs"), role: Role::Viewer };
        let now = SystemTime::now();
        let first = sessions.open_session(who.clone(), None, now).unwrap().cookie;
        let mut later = now;
        for _ in 0..MOST_SESSIONS {
            later += Duration::from_secs(1);
            sessions.open_session(who.clone(), None, later).unwrap();
        }
        assert_eq!(sessions.lock().sessions.len(), MOST_SESSIONS);
        assert_eq!(sessions.find(&first, later), None);
    }

    #[test]
    fn a_session_is_opened_also_if_it_cannot_be_noted() {
        let sessions = Sessions::open(Path::new("/nowhere/s.json"));
        let who = Identity { name: Arc::from("fs"), role: Role::Operator };
        let now = SystemTime::now();
        let cookie = sessions.open_session(who.clone(), None, now).unwrap().cookie;
        assert_eq!(sessions.find(&cookie, now), Some(who));
    }

    #[test]
    fn a_broken_file_is_an_empty_one() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("s.json");
        fs::write(&path, b"{\"x\":").unwrap();
        assert!(Sessions::open(&path).lock().sessions.is_empty());
    }
}
