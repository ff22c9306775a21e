//! CPU affinity and scheduling of a thread: requests to the kernel, and its reports.

use std::io;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The scheduling parameters of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Treatment {
    /// The policy: `SCHED_OTHER`, `SCHED_FIFO` and so on, by number.
    pub policy: i32,
    /// The priority under a real-time policy, else 0.
    pub priority: i32,
    /// The niceness.
    pub nice: i32,
}

/// Pins the calling thread to these processors.
pub fn stay_on(cpus: &[usize]) -> io::Result<()> {
    let mut set = CpuSet::new();
    for &cpu in cpus {
        if cpu >= CpuSet::MAX_CPU {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        set.set(cpu);
    }
    Ok(sched_setaffinity(None, &set)?)
}

/// Returns the processors that the calling thread may run on.
pub fn allowed() -> io::Result<Vec<usize>> {
    let set = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect())
}

/// Gives the calling thread real-time priority. Threads that it starts have the usual policy again.
pub fn be_first(priority: u8) -> io::Result<()> {
    let parameters = libc::sched_param { sched_priority: priority.into() };
    let policy = libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK;
    // SAFETY: the kernel reads `parameters`, which outlives the call, and 0 is the calling thread. The system call
    // itself, since musl's wrapper refuses to make it.
    let result =
        unsafe { libc::syscall(libc::SYS_sched_setscheduler, 0, policy, &raw const parameters) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Lets every other thread of the machine run before the calling one (`SCHED_IDLE`, sched(7)). Threads that it starts
/// have the same policy.
pub fn run_last() -> io::Result<()> {
    let parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: the kernel reads `parameters`, which outlives the call, and 0 is the calling thread. The system call
    // itself, since musl's wrapper refuses to make it.
    let result = unsafe {
        libc::syscall(libc::SYS_sched_setscheduler, 0, libc::SCHED_IDLE, &raw const parameters)
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Sets the niceness of the calling thread: below 0 it gets more than its share.
pub fn be_nice(nice: i32) -> io::Result<()> {
    Ok(rustix::process::setpriority_process(None, nice)?)
}

/// Returns the scheduling parameters of the calling thread.
pub fn treatment() -> io::Result<Treatment> {
    let mut parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: 0 is the calling thread, and the call takes no memory.
    let policy = unsafe { libc::syscall(libc::SYS_sched_getscheduler, 0) };
    // SAFETY: the kernel writes one `sched_param` into `parameters`, which is one.
    let result = unsafe { libc::syscall(libc::SYS_sched_getparam, 0, &raw mut parameters) };
    if policy < 0 || result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(Treatment {
        policy: policy as i32 & !libc::SCHED_RESET_ON_FORK,
        priority: parameters.sched_priority,
        nice: rustix::process::getpriority_process(None)?,
    })
}

/// Lets every other thread of the machine use the disks before the calling one. Disk schedulers without classes ignore
/// it.
pub fn use_disks_last() -> io::Result<()> {
    const CLASS_IDLE: libc::c_int = 3 << 13;
    set_disk_priority(CLASS_IDLE)
}

/// Takes back [`use_disks_last`]: the calling thread uses the disks with the priority of its niceness.
pub fn use_disks_as_usual() -> io::Result<()> {
    const CLASS_NONE: libc::c_int = 0;
    set_disk_priority(CLASS_NONE)
}

fn set_disk_priority(priority: libc::c_int) -> io::Result<()> {
    const WHO_PROCESS: libc::c_int = 1;
    // SAFETY: the call takes three numbers and no address; 0 means the calling thread.
    match unsafe { libc::syscall(libc::SYS_ioprio_set, WHO_PROCESS, 0, priority) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_stays_where_it_is_put_and_says_so() {
        let all = allowed().unwrap();
        let last = *all.last().unwrap();
        std::thread::spawn(move || {
            stay_on(&[last]).unwrap();
            assert_eq!(allowed().unwrap(), [last]);
        })
        .join()
        .unwrap();
        assert_eq!(allowed().unwrap(), all, "others stay where they were");
        assert!(stay_on(&[CpuSet::MAX_CPU]).is_err());
    }

    #[test]
    fn a_thread_runs_last_and_others_do_not() {
        std::thread::spawn(|| {
            run_last().unwrap();
            assert_eq!(treatment().unwrap().policy, libc::SCHED_IDLE);
        })
        .join()
        .unwrap();
        assert_ne!(treatment().unwrap().policy, libc::SCHED_IDLE);
    }

    #[test]
    fn a_thread_tells_how_it_is_treated() {
        std::thread::spawn(|| {
            let usual = treatment().unwrap();
            be_nice(usual.nice + 1).unwrap();
            assert_eq!(treatment().unwrap().nice, usual.nice + 1);
        })
        .join()
        .unwrap();
    }
}
