//! Keys, region and endpoint of a profile in `~/.aws/credentials` and `~/.aws/config`.
//!
//! Source of the format: AWS SDKs and Tools Reference Guide, "Shared config and credentials files". Lines are
//! `[section]` and `name = value`; lines that begin with a space belong to the value above and are ignored here, and
//! comments begin with `#` or `;`. A section is `[NAME]` in the first file, and `[profile NAME]` or `[default]` in the
//! second. Of both files, the first one's values count.
//!
//! Profiles that are signed in by other means (SSO, roles, processes) are refused with advice: `aws` itself can export
//! their keys.

use std::collections::BTreeMap;
use std::env::VarError;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use fullbore_linux::regular_file;
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};

/// The largest file that is read.
const LARGEST: u64 = 1 << 20;

/// The setting of a profile, the key that it becomes, and the variables that replace it.
const SETTINGS: [(&str, AmazonS3ConfigKey, &[&str]); 5] = [
    ("aws_access_key_id", AmazonS3ConfigKey::AccessKeyId, &KEYS),
    ("aws_secret_access_key", AmazonS3ConfigKey::SecretAccessKey, &KEYS),
    ("aws_session_token", AmazonS3ConfigKey::Token, &KEYS),
    ("region", AmazonS3ConfigKey::Region, &["AWS_REGION", "AWS_DEFAULT_REGION"]),
    ("endpoint_url", AmazonS3ConfigKey::Endpoint, &ENDPOINTS),
];

/// With one of these, the keys of the environment are used, and none of a profile.
const KEYS: [&str; 4] = [
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
];

/// Where the environment names the endpoint.
pub(super) const ENDPOINTS: [&str; 3] = ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"];

/// Settings that mean another way to sign in.
const OTHER_WAYS: [&str; 6] = [
    "sso_session",
    "sso_start_url",
    "role_arn",
    "credential_process",
    "web_identity_token_file",
    "login_session",
];

/// A profile that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// A file cannot be read.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// The profile is in no file.
    #[error("there is no profile `{name}` in {} or {}", credentials.display(), config.display())]
    Missing {
        /// Its name.
        name: String,
        /// The file with keys.
        credentials: PathBuf,
        /// The other file.
        config: PathBuf,
    },
    /// The profile has no keys.
    #[error("profile `{name}` signs in by `{setting}`, and has no keys")]
    NoKeys {
        /// Its name.
        name: String,
        /// The setting.
        setting: &'static str,
    },
}

type Settings = BTreeMap<String, String>;

/// The settings of a profile that the environment does not replace.
#[derive(Debug, Default)]
pub(super) struct AwsProfile {
    settings: Settings,
}

impl AwsProfile {
    /// Reads the profile that the environment names, or `default`.
    pub(super) fn of_environment() -> Result<Self, ProfileError> {
        let variable = |name: &str| match std::env::var(name) {
            Ok(value) => Some(value).filter(|it| !it.is_empty()),
            Err(VarError::NotPresent | VarError::NotUnicode(_)) => None,
        };
        let home = variable("HOME").map(PathBuf::from).unwrap_or_default();
        let file = |name: &str, usual: &str| {
            variable(name).map_or_else(|| home.join(".aws").join(usual), PathBuf::from)
        };
        let credentials = file("AWS_SHARED_CREDENTIALS_FILE", "credentials");
        let config = file("AWS_CONFIG_FILE", "config");
        let chosen = variable("AWS_PROFILE");
        let name = chosen.as_deref().unwrap_or("default");
        let settings = merge(name, &text_of(&credentials)?, &text_of(&config)?);
        let Some(mut settings) = settings else {
            return match chosen {
                Some(name) => Err(ProfileError::Missing { name, credentials, config }),
                None => Ok(Self::default()),
            };
        };
        let replaced = |names: &[&str]| names.iter().any(|it| variable(it).is_some());
        if !settings.contains_key("aws_access_key_id") && !replaced(&KEYS) {
            // Without a choice, the keys of the machine are tried.
            if let (Some(name), Some(setting)) = (chosen, other_way(&settings)) {
                return Err(ProfileError::NoKeys { name, setting });
            }
        }
        for (setting, _, variables) in &SETTINGS {
            if replaced(variables) {
                settings.remove(*setting);
            }
        }
        Ok(Self { settings })
    }

    /// The endpoint.
    pub(super) fn endpoint(&self) -> Option<&str> {
        self.settings.get("endpoint_url").map(String::as_str)
    }

    /// Gives the settings to a store.
    pub(super) fn apply(&self, mut builder: AmazonS3Builder) -> AmazonS3Builder {
        for (setting, key, _) in SETTINGS {
            if let Some(value) = self.settings.get(setting) {
                builder = builder.with_config(key, value);
            }
        }
        builder
    }
}

fn other_way(settings: &Settings) -> Option<&'static str> {
    OTHER_WAYS.into_iter().find(|it| settings.contains_key(*it))
}

/// Reads a file; one that does not exist is empty.
fn text_of(path: &Path) -> Result<String, ProfileError> {
    let failed = |source| ProfileError::File { path: path.to_owned(), source };
    let file = match regular_file::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(String::new()),
        opened => opened.map_err(failed)?,
    };
    let mut text = String::new();
    file.take(LARGEST + 1).read_to_string(&mut text).map_err(failed)?;
    if text.len() as u64 > LARGEST {
        let why = format!("larger than {LARGEST} bytes");
        return Err(failed(io::Error::new(io::ErrorKind::InvalidData, why)));
    }
    Ok(text)
}

/// The settings of a profile in both files; `None` if it is in neither.
fn merge(name: &str, credentials: &str, config: &str) -> Option<Settings> {
    let in_config =
        if name == "default" { "default".to_owned() } else { format!("profile {name}") };
    let (mut found, mut all) = (false, Settings::new());
    for (text, section) in [(config, in_config.as_str()), (credentials, name)] {
        if let Some(settings) = section_of(text, section) {
            found = true;
            all.extend(settings);
        }
    }
    found.then_some(all)
}

/// The settings of a section; `None` if there is no such section.
fn section_of(text: &str, wanted: &str) -> Option<Settings> {
    let (mut settings, mut inside) = (None::<Settings>, false);
    for line in text.trim_start_matches('\u{feff}').lines() {
        if let Some(section) = line.strip_prefix('[').and_then(|it| it.split_once(']')) {
            let words = section.0.split_whitespace();
            inside = words.eq(wanted.split_whitespace());
            if inside {
                settings.get_or_insert_default();
            }
        } else if inside && !line.starts_with([' ', '\t', '#', ';']) {
            let Some((name, value)) = line.split_once('=') else { continue };
            // A comment in a line has a space before it.
            let value = value.split(" #").next().unwrap_or_default();
            let value = value.split(" ;").next().unwrap_or_default().trim();
            let name = name.trim().to_ascii_lowercase();
            settings.get_or_insert_default().insert(name, value.to_owned());
        }
    }
    settings
}

#[cfg(test)]
mod tests {
    use super::*;

    const CREDENTIALS: &str = "# keys\n[default]\naws_access_key_id = A\naws_secret_access_key=B=/+ # old\n\n\
        [ archive ]\nAWS_ACCESS_KEY_ID = C\naws_secret_access_key = D\nregion = of-credentials\n";
    const CONFIG: &str = "[default]\nregion = eu-central-1\n[profile archive]\nregion = of-config\n\
        endpoint_url = https://s3.archive.example.org\ns3 =\n  max_concurrent_requests = 20\n  region = nested\n\
        ; end\n[profile people]\nsso_session = x\nsso_account_id = 1\n";

    fn of(name: &str) -> Option<Vec<(String, String)>> {
        merge(name, CREDENTIALS, CONFIG).map(|it| it.into_iter().collect())
    }

    fn pairs(all: &[(&str, &str)]) -> Option<Vec<(String, String)>> {
        Some(all.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect())
    }

    #[test]
    fn a_profile_joins_both_files() {
        let default = [
            ("aws_access_key_id", "A"),
            ("aws_secret_access_key", "B=/+"),
            ("region", "eu-central-1"),
        ];
        assert_eq!(of("default"), pairs(&default));
        let archive = [
            ("aws_access_key_id", "C"),
            ("aws_secret_access_key", "D"),
            ("endpoint_url", "https://s3.archive.example.org"),
            ("region", "of-credentials"),
            ("s3", ""),
        ];
        assert_eq!(of("archive"), pairs(&archive));
        assert_eq!(of("nobody"), None);
    }

    #[test]
    fn other_ways_to_sign_in_are_seen() {
        let settings = merge("people", CREDENTIALS, CONFIG).unwrap();
        assert_eq!(other_way(&settings), Some("sso_session"));
        assert_eq!(other_way(&merge("archive", CREDENTIALS, CONFIG).unwrap()), None);
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_read(text in "[\\[\\]a-z =#;\n\t]{0,200}") {
            let _ = merge("a", &text, &text);
        }
    }
}
