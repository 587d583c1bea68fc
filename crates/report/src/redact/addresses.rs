//! IP and MAC addresses.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::names::{Hit, Kind};
use super::scan::{before, begins_with_port, byte, is_word, run};

pub(super) fn address(text: &str, at: usize) -> Option<Hit> {
    let (key, end) = ip_v4(text, at).or_else(|| coloned(text, at))?;
    Some(Hit { kind: Kind::Address, key, end })
}

/// `10.77.0.11`, but not a release with four parts.
pub(super) fn ip_v4(text: &str, at: usize) -> Option<(String, usize)> {
    let left = before(text, at);
    if left.is_some_and(|it| it.is_ascii_alphanumeric() || it == b'.') {
        return None;
    }
    let end = run(text, at, |it| it.is_ascii_digit() || it == b'.');
    let found = text.get(at..end)?.trim_end_matches('.');
    let end = at + found.len();
    let address: Ipv4Addr = found.parse().ok()?;
    let right = byte(text, end);
    if is_word(right) || right == Some(b'+') {
        return None;
    }
    // `libfoo-1.2.3.4` is a release, `rank-10.0.0.1` is not.
    let release = is_release(text, at) || (matches!(left, Some(b'-' | b'_')) && address.octets()[0] < 10);
    if release && !begins_with_port(text.get(end..)?) && right != Some(b'/') {
        return None;
    }
    let kept = address.is_loopback()
        || address.is_unspecified()
        || address.octets()[0] == 255
        || address == Ipv4Addr::new(169, 254, 169, 254);
    (!kept).then(|| (address.to_string(), end))
}

/// Whether the words before a number announce a release.
pub(super) fn is_release(text: &str, at: usize) -> bool {
    let before = text.get(..at).unwrap_or_default();
    if before.ends_with("==") {
        return true;
    }
    let word = before
        .trim_end_matches([' ', ':', '=', '(', '"'])
        .rsplit(|it: char| !it.is_ascii_alphabetic())
        .next()
        .unwrap_or_default();
    matches!(
        word.to_ascii_lowercase().as_str(),
        "version" | "ver" | "v" | "release" | "driver" | "firmware" | "fw" | "build"
    )
}

/// `fe80::1`, or `0a:58:0a:f4:00:0b`; not `12:34:56`, `0000:31:00.0`, `ec0d:9a03:0029:f5a2` or `c10d::`.
pub(super) fn coloned(text: &str, at: usize) -> Option<(String, usize)> {
    let left = before(text, at);
    if is_word(left) || left == Some(b'.') || text.get(..at)?.ends_with("::") {
        return None;
    }
    let first = byte(text, at)?;
    if first == b':' && (left == Some(b':') || byte(text, at + 1) != Some(b':')) {
        return None;
    }
    let hex_end = run(text, at, |it| it.is_ascii_hexdigit() || it == b':');
    let hex = text.get(at..hex_end)?;
    let groups = hex.bytes().filter(|it| *it == b':').count() + 1;
    if groups < 3 || is_word(byte(text, hex_end)) {
        return None;
    }
    if matches!(groups, 6 | 8 | 20) && hex.split(':').all(|it| it.len() == 2) && left != Some(b':') {
        return Some((hex.to_ascii_lowercase(), hex_end));
    }
    // An IPv4 address may be embedded: `::ffff:10.0.0.6`.
    let long_end = run(text, at, |it| it.is_ascii_hexdigit() || it == b':' || it == b'.');
    for end in [long_end, hex_end] {
        let found = text.get(at..end)?.trim_end_matches('.');
        let found = if found.ends_with("::") { found } else { found.trim_end_matches(':') };
        let Ok(address) = found.parse::<Ipv6Addr>() else { continue };
        let parts = || found.split(':').filter(|it| !it.is_empty());
        // A list of small numbers is not an address, nor is one word before `::`.
        if parts().count() < 2
            || (!found.contains("::") && parts().all(|it| it.len() < 3))
            || is_word(byte(text, at + found.len()))
        {
            return None;
        }
        let address = address.to_canonical();
        let kept = address.is_loopback() || address.is_unspecified();
        return (!kept).then(|| (address.to_string(), at + found.len()));
    }
    None
}
