//! The interfaces of this host, with their addresses (`getifaddrs(3)`).

use std::ffi::CStr;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Returns every address of this host with the name of its interface.
pub fn addresses() -> io::Result<Vec<(String, IpAddr)>> {
    let mut first: *mut libc::ifaddrs = std::ptr::null_mut();
    // SAFETY: the call writes the head of a new list to `first`, which lives through it.
    if unsafe { libc::getifaddrs(&mut first) } < 0 {
        return Err(io::Error::last_os_error());
    }
    let mut found = Vec::new();
    let mut next = first;
    while !next.is_null() {
        // SAFETY: the list is ours until `freeifaddrs`, and its entries are whole.
        let entry = unsafe { &*next };
        // SAFETY: the name is a string of the list, which lives until `freeifaddrs`.
        let name = unsafe { CStr::from_ptr(entry.ifa_name) }.to_string_lossy().into_owned();
        found.extend(address(entry).map(|address| (name, address)));
        next = entry.ifa_next;
    }
    // SAFETY: the list was made above, and nothing refers to it any more.
    unsafe { libc::freeifaddrs(first) };
    Ok(found)
}

fn address(entry: &libc::ifaddrs) -> Option<IpAddr> {
    if entry.ifa_addr.is_null() {
        return None;
    }
    // SAFETY: the address is not null, and begins with its family.
    let family = unsafe { (*entry.ifa_addr).sa_family };
    match libc::c_int::from(family) {
        libc::AF_INET => {
            // SAFETY: the family says that this is a `sockaddr_in`.
            let address = unsafe { entry.ifa_addr.cast::<libc::sockaddr_in>().read_unaligned() };
            Some(Ipv4Addr::from(u32::from_be(address.sin_addr.s_addr)).into())
        }
        libc::AF_INET6 => {
            // SAFETY: the family says that this is a `sockaddr_in6`.
            let address = unsafe { entry.ifa_addr.cast::<libc::sockaddr_in6>().read_unaligned() };
            Some(Ipv6Addr::from(address.sin6_addr.s6_addr).into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_interface_has_its_address() {
        let found = addresses().unwrap();
        assert!(found.contains(&("lo".to_owned(), Ipv4Addr::LOCALHOST.into())), "{found:?}");
    }
}
