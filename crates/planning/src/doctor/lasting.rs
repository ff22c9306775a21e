//! Files that set everything again at the start of the host: one for `sysctl`, one unit of systemd.

use std::io;
use std::path::{Path, PathBuf};

use fullbore_survey::bench::history;

use super::fix::Setting;

/// The name of the file for `/etc/sysctl.d`.
pub const SYSCTL: &str = "60-fullbore.conf";

/// The name of the unit for `/etc/systemd/system`.
pub const UNIT: &str = "fullbore-host.service";

/// The text for `/etc/sysctl.d`.
pub fn sysctl(settings: &[Setting]) -> String {
    let line = |setting: &Setting| match setting {
        Setting::File { path, value } => {
            let name = path.strip_prefix("/proc/sys/")?.replace('/', ".");
            Some(format!("{name} = {value}\n"))
        }
        _ => None,
    };
    let lines: String = settings.iter().filter_map(line).collect();
    format!("# Settings for recording, written by `fullbore doctor`.\n{lines}")
}

/// The unit, which changes what `sysctl` does not. A setting that fails stops no other.
pub fn unit(settings: &[Setting]) -> String {
    let line = |setting: &Setting| {
        let command = setting.command();
        // systemd expands `%` and `$`, and ends lines at a quote that is not closed.
        let quoted = command.replace('%', "%%").replace('$', "$$").replace('\'', "");
        match setting {
            Setting::File { path, .. } if path.starts_with("/proc/sys/") => None,
            _ => Some(format!("ExecStart=-/bin/sh -c '{quoted}'\n")),
        }
    };
    let lines: String = settings.iter().filter_map(line).collect();
    let lines = if lines.is_empty() { "ExecStart=/bin/true\n".to_owned() } else { lines };
    format!(
        "[Unit]\n\
         Description=Settings of this host for recording with fullbore\n\
         After=network-pre.target systemd-udev-settle.service\n\
         Before=network-online.target\n\n\
         [Service]\n\
         Type=oneshot\n\
         RemainAfterExit=yes\n\
         {lines}\n\
         [Install]\n\
         WantedBy=multi-user.target\n"
    )
}

/// Writes both files into a directory, and returns their paths.
pub fn write(directory: &Path, settings: &[Setting]) -> io::Result<[PathBuf; 2]> {
    let files = [(SYSCTL, sysctl(settings)), (UNIT, unit(settings))];
    files.map(|(name, text)| (directory.join(name), text)).into_iter().try_for_each(
        |(path, text)| {
            history::write_text(&path, &text).map_err(|error| io::Error::other(error.to_string()))
        },
    )?;
    Ok([SYSCTL, UNIT].map(|name| directory.join(name)))
}
