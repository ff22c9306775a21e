//! Child processes that outlive their parent and its terminal.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Makes a command run in a session of its own: no terminal, and no signal of the parent's session, reaches it.
pub fn in_own_session(command: &mut Command) -> &mut Command {
    let enter = || rustix::process::setsid().map(drop).map_err(io::Error::from);
    // SAFETY: between fork and exec, the closure only makes the system call setsid. It allocates nothing and takes no lock.
    unsafe { command.pre_exec(enter) }
}

#[cfg(test)]
mod tests {
    use std::process::Stdio;

    use super::*;

    /// The process group, and the session, of a process: the fifth and sixth field of its `stat`.
    fn session_of(pid: u32) -> String {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        let behind_name = stat.rsplit_once(')').unwrap().1;
        behind_name.split_whitespace().nth(3).unwrap().to_owned()
    }

    #[test]
    fn a_command_in_its_own_session_leads_it() {
        let mut command = Command::new("cat");
        let mut child =
            in_own_session(command.stdin(Stdio::piped()).stdout(Stdio::null())).spawn().unwrap();
        assert_eq!(session_of(child.id()), child.id().to_string());
        assert_ne!(session_of(std::process::id()), child.id().to_string());
        drop(child.stdin.take());
        assert!(child.wait().unwrap().success());
    }
}
