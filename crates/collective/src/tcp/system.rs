//! The network interfaces of this host, from `getifaddrs`.
#![allow(unsafe_code, reason = "getifaddrs hands out a linked list of C structures")]

use std::ffi::CStr;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ptr;

use super::interface::Interface;

/// Every address of every interface, in the kernel's order.
pub(super) fn interfaces() -> io::Result<Vec<Interface>> {
    let mut head: *mut libc::ifaddrs = ptr::null_mut();
    // SAFETY: `head` is a place for the pointer to the list.
    if unsafe { libc::getifaddrs(&raw mut head) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let mut list = Vec::new();
    let mut next = head;
    // SAFETY: every entry of the list lives until `freeifaddrs` below, and the last one's successor is null.
    while let Some(entry) = unsafe { next.as_ref() } {
        next = entry.ifa_next;
        // SAFETY: the addresses of an entry are null or structures of the family that they name.
        let Some(address) = (unsafe { read(entry.ifa_addr) }) else { continue };
        // SAFETY: as above.
        let mask = unsafe { read(entry.ifa_netmask) };
        // SAFETY: the name is a C string of the entry.
        let name = unsafe { CStr::from_ptr(entry.ifa_name) };
        // SAFETY: as above.
        let index = unsafe { libc::if_nametoindex(entry.ifa_name) };
        let has = |flag: libc::c_int| entry.ifa_flags & flag.cast_unsigned() != 0;
        list.push(Interface {
            name: name.to_string_lossy().into_owned(),
            index,
            address,
            prefix: mask.map_or(0, ones),
            up: has(libc::IFF_UP) && has(libc::IFF_RUNNING),
            loopback: has(libc::IFF_LOOPBACK),
        });
    }
    // SAFETY: the list came from `getifaddrs`, and nothing points into it any more.
    unsafe { libc::freeifaddrs(head) };
    Ok(list)
}

/// The address behind a pointer that is null, or points to a structure of the family that its first field names.
unsafe fn read(address: *const libc::sockaddr) -> Option<IpAddr> {
    // SAFETY: by the contract above.
    match i32::from(unsafe { address.as_ref() }?.sa_family) {
        libc::AF_INET => {
            // SAFETY: by its family; copied, so that its alignment does not matter.
            let it = unsafe { address.cast::<libc::sockaddr_in>().read_unaligned() };
            Some(Ipv4Addr::from_bits(u32::from_be(it.sin_addr.s_addr)).into())
        }
        libc::AF_INET6 => {
            // SAFETY: as above.
            let it = unsafe { address.cast::<libc::sockaddr_in6>().read_unaligned() };
            Some(Ipv6Addr::from(it.sin6_addr.s6_addr).into())
        }
        _ => None,
    }
}

fn ones(mask: IpAddr) -> u8 {
    let ones = match mask {
        IpAddr::V4(it) => it.to_bits().count_ones(),
        IpAddr::V6(it) => it.to_bits().count_ones(),
    };
    u8::try_from(ones).unwrap_or(u8::MAX)
}
