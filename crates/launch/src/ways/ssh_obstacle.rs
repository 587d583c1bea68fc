//! Why `ssh` did not lead to a shell, from what it printed.
//!
//! The texts are those of OpenSSH's client (sshconnect.c, sshconnect2.c, ssh.c, readconf.c, clientloop.c, packet.c; the
//! same from 7.4 to 10.0) and of the C library's errors, which the client prints in English.

use crate::{Obstacle, ObstacleKind};

/// From the most telling text to the least: ssh prints several lines.
const TEXTS: &[(&str, ObstacleKind)] = &[
    ("REMOTE HOST IDENTIFICATION HAS CHANGED", ObstacleKind::KeyChanged),
    ("Host key for", ObstacleKind::KeyChanged),
    ("host key is known for", ObstacleKind::KeyUnknown),
    ("Host key verification failed", ObstacleKind::KeyUnknown),
    ("Could not resolve hostname", ObstacleKind::NameUnknown),
    ("Name or service not known", ObstacleKind::NameUnknown),
    ("Permission denied", ObstacleKind::Denied),
    ("Too many authentication failures", ObstacleKind::Denied),
    ("Connection refused", ObstacleKind::Refused),
    ("No route to host", ObstacleKind::NoRoute),
    ("Network is unreachable", ObstacleKind::NoRoute),
    ("Connection timed out", ObstacleKind::NoAnswer),
    ("Operation timed out", ObstacleKind::NoAnswer),
    ("not responding", ObstacleKind::NoAnswer),
    ("account is currently not available", ObstacleKind::NoShell),
    ("account is not available", ObstacleKind::NoShell),
    ("account has expired", ObstacleKind::Denied),
    ("kex_exchange_identification", ObstacleKind::Closed),
    ("ssh_exchange_identification", ObstacleKind::Closed),
    ("Connection closed", ObstacleKind::Closed),
    ("Connection reset", ObstacleKind::Closed),
    ("closed by remote host", ObstacleKind::Closed),
    ("Bad owner or permissions", ObstacleKind::Launcher),
    ("Bad configuration option", ObstacleKind::Launcher),
    ("terminating, ", ObstacleKind::Launcher),
    ("command-line: line 0", ObstacleKind::Launcher),
];

/// The code with which ssh itself fails; other codes are those of the shell.
const OWN_FAILURE: i32 = 255;

pub(crate) fn obstacle(code: Option<i32>, printed: &str) -> Obstacle {
    let last = printed.lines().rev().map(str::trim).find(|it| !it.is_empty()).unwrap_or_default();
    for (text, kind) in TEXTS {
        // The last line with the text: a jump host may have spoken before.
        let Some(line) = printed.lines().rev().find(|it| it.contains(text)) else { continue };
        let kind = match kind {
            ObstacleKind::Denied if asks(line) => ObstacleKind::AsksForPassword,
            kind => *kind,
        };
        if kind == ObstacleKind::KeyChanged {
            return Obstacle::new(kind, &key_place(printed).unwrap_or_else(|| last.to_owned()));
        }
        return Obstacle::new(kind, line);
    }
    match code {
        Some(OWN_FAILURE) | None => Obstacle::new(ObstacleKind::Other, last),
        Some(code) if last.is_empty() => Obstacle::new(ObstacleKind::NoShell, &format!("exit code {code}")),
        Some(_) => Obstacle::new(ObstacleKind::NoShell, last),
    }
}

/// `Permission denied (publickey,password).` names what the host would accept.
fn asks(line: &str) -> bool {
    line.rsplit_once('(')
        .is_some_and(|(_, methods)| methods.contains("password") || methods.contains("keyboard-interactive"))
}

/// `Offending ED25519 key in /root/.ssh/known_hosts:3, for h1`: where the old key is, and the name under which it is known.
fn key_place(printed: &str) -> Option<String> {
    let place = printed.lines().find(|it| it.contains("Offending ") && it.contains(" key in "))?.trim();
    let name =
        printed.lines().find_map(|it| it.trim().strip_prefix("Host key for ")?.split_once(" has changed"));
    Some(name.map_or_else(|| place.to_owned(), |(name, _)| format!("{place}, for {name}")))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_ssh_prints() {
        let changed = "@@@@\n@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @\nOffending ED25519 key in \
                       /root/.ssh/known_hosts:3\nHost key for h1 has changed and you have requested strict checking.\n\
                       Host key verification failed.\n";
        let unknown = "No ED25519 host key is known for h1 and you have requested strict checking.\nHost key \
                       verification failed.\n";
        for (printed, kind) in [
            ("ssh: Could not resolve hostname h9: Name or service not known\n", ObstacleKind::NameUnknown),
            (
                "ssh: Could not resolve hostname h9: Temporary failure in name resolution",
                ObstacleKind::NameUnknown,
            ),
            ("ssh: connect to host h1 port 22: Connection refused\r\n", ObstacleKind::Refused),
            ("ssh: connect to host h1 port 22: No route to host\r\n", ObstacleKind::NoRoute),
            ("ssh: connect to host h1 port 22: Connection timed out\r\n", ObstacleKind::NoAnswer),
            ("Connection timed out during banner exchange\r\n", ObstacleKind::NoAnswer),
            ("root@h1: Permission denied (publickey).\r\n", ObstacleKind::Denied),
            ("root@h1: Permission denied (publickey,password).\r\n", ObstacleKind::AsksForPassword),
            ("root@h1: Permission denied (publickey,keyboard-interactive).", ObstacleKind::AsksForPassword),
            (changed, ObstacleKind::KeyChanged),
            (unknown, ObstacleKind::KeyUnknown),
            ("kex_exchange_identification: read: Connection reset by peer\r\n", ObstacleKind::Closed),
            ("Connection closed by 10.0.0.1 port 22\r\n", ObstacleKind::Closed),
            ("/root/.ssh/config: line 3: Bad configuration option: x\n", ObstacleKind::Launcher),
            ("something new\n", ObstacleKind::Other),
            ("", ObstacleKind::Other),
        ] {
            assert_eq!(obstacle(Some(255), printed).kind, kind, "{printed}");
        }
        assert!(obstacle(Some(255), changed).detail.contains("known_hosts:3"));
        assert_eq!(obstacle(Some(127), "sh: not found").kind, ObstacleKind::NoShell);
        assert_eq!(obstacle(Some(1), "This account is currently not available.").kind, ObstacleKind::NoShell);
    }

    #[test]
    fn a_jump_host_that_works_and_a_target_that_does_not() {
        let printed = "Welcome to jump\nchannel 0: open failed: connect failed: No route to host\r\nstdio forwarding \
                       failed\r\nkex_exchange_identification: Connection closed by remote host\r\n";
        assert_eq!(obstacle(Some(255), printed).kind, ObstacleKind::NoRoute);
    }

    #[test]
    fn a_changed_key_has_its_place_and_its_name() {
        let printed = "@@@@\n@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @\nOffending ED25519 key in \
                       /root/.ssh/known_hosts:3\r\nHost key for h1 has changed and you have requested strict checking.\r\n";
        let found = obstacle(Some(255), printed);
        assert_eq!(found.detail, "Offending ED25519 key in /root/.ssh/known_hosts:3, for h1");
    }

    proptest! {
        #[test]
        fn any_text_is_one_line(printed in "(.|\n){0,400}", code in proptest::option::of(0..256)) {
            let detail = obstacle(code, &printed).detail;
            prop_assert!(detail.chars().count() <= 300 && !detail.chars().any(char::is_control));
        }
    }
}
