//! The rights that only the opening of packet rings and XDP sockets needs.

use std::io;

use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

/// Gives up CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF for the calling thread and those that it starts.
///
/// Threads that read packets and write files call it before they begin. The thread that opens sources keeps its rights:
/// it opens those of the next recording too. Threads share memory, so this is a bound for mistakes, and no wall against an
/// attacker who runs code in the process.
pub fn drop_network_rights() -> io::Result<()> {
    let mut sets = capabilities(None)?;
    let before = sets;
    let rights = CapabilitySet::NET_RAW | CapabilitySet::NET_ADMIN | CapabilitySet::BPF;
    for set in [&mut sets.effective, &mut sets.permitted, &mut sets.inheritable] {
        set.remove(rights);
    }
    if sets != before {
        set_capabilities(None, sets)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_gave_its_rights_up_can_make_no_packet_socket_and_others_keep_theirs() {
        let before = capabilities(None).unwrap();
        let made = std::thread::spawn(|| {
            drop_network_rights().unwrap();
            rustix::net::socket(
                rustix::net::AddressFamily::PACKET,
                rustix::net::SocketType::RAW,
                None,
            )
        });
        assert_eq!(made.join().unwrap().unwrap_err(), rustix::io::Errno::PERM);
        assert_eq!(capabilities(None).unwrap(), before);
    }
}
