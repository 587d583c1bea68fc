//! The name of the master cannot be resolved.

use evidence::signals::blocked::{
    CLIENT_FAILED, CLIENT_GAVE_UP, CLIENT_TIMED_OUT, GAI_ERROR, HOST_NOT_FOUND, LOOK_UP_FAILED, MASTER_ADDR,
    NAME_NOT_RESOLVED,
};
use evidence::signals::interface::GLOO_NO_INTERFACE;
use evidence::signals::launch::CLIENTS_JOINED;
use evidence::{Sighting, Source};

use crate::interface::address::{got_through, ipv4, is_number, without_port};
use crate::interface::socket_ifname_not_found::is_interface;
use crate::{Check, Checked, Confidence, Finding, Log, Role, Rule, Severity};

/// See the module documentation.
pub static RULE: Rule = Rule {
    id: "dns-master-addr",
    title: "the master's name cannot be resolved",
    severity: Severity::Error,
    role: Role::Cause,
    needs: &[Source::JobOutput],
    why: "All ranks connect to MASTER_ADDR. Without an address for that name they wait until the rendezvous times out, and no rank reaches \
          NCCL.",
    fix: "Use a name that every node can resolve (`getent hosts NAME` on each), or the address itself. In Kubernetes a pod's name needs \
          a headless Service: POD.SERVICE.NAMESPACE.svc (JobSet: JOBSET-JOB-0-0.JOBSET), with publishNotReadyAddresses so that it \
          exists before the pod is ready; wait for the master's port, not only for its name.",
    references: &[
        "https://github.com/kubernetes-sigs/jobset/issues/603",
        "https://github.com/kubeflow/pytorch-operator/issues/333",
        "https://kubernetes.io/docs/concepts/services-networking/dns-pod-service/",
    ],
    checks: &[Check::Log(check)],
};

fn check(log: &Log) -> Checked {
    let signals = [
        &NAME_NOT_RESOLVED,
        &HOST_NOT_FOUND,
        &GAI_ERROR,
        &LOOK_UP_FAILED,
        &GLOO_NO_INTERFACE,
        &CLIENT_FAILED,
    ];
    let found = log.find_signals(&signals, Source::JobOutput)?;
    let gave_up: Vec<&Sighting> = found.iter().copied().filter(|it| *it.signal == HOST_NOT_FOUND).collect();
    if let Some(first) = gave_up.first() {
        let message = match first.get("host") {
            "" => "the master's name could not be resolved, and the program gave up".to_owned(),
            host => format!("{host} could not be resolved, and the program gave up"),
        };
        return Ok(vec![Finding::new(Confidence::Certain, message).by(log, &gave_up)]);
    }
    let own = |it: &&Sighting| *it.signal == GLOO_NO_INTERFACE && !is_interface(log, it.get("name"));
    if let Some(first) = found.iter().copied().find(own) {
        let message = format!("Gloo finds no address for {}, the host's own name", first.get("name"));
        let finding = Finding::new(Confidence::Likely, message).by(log, &[first]);
        return Ok(vec![finding.or("socket-ifname-not-found").fix(
            "Make the host's name resolve to its address (/etc/hosts or the name server; check with `getent hosts $(hostname)`), or set \
             GLOO_SOCKET_IFNAME to the interface that has it.",
        )]);
    }
    let numbers: Vec<&Sighting> = found
        .iter()
        .copied()
        .filter(|it| *it.signal == CLIENT_FAILED && is_number(without_port(it.get("peer"))))
        .collect();
    if let Some(first) = numbers.first() {
        let address = without_port(first.get("peer"));
        let message = format!("the master's name is made of digits and was read as the address {address}");
        let finding = Finding::new(Confidence::Likely, message).by(log, &numbers);
        return Ok(vec![finding.fix(
            "Give the host a name with a letter in it, or set MASTER_ADDR to its address; on one node: `torchrun --master-addr 127.0.0.1` \
             or `--rdzv-endpoint=localhost:0` in place of `--standalone`.",
        )]);
    }
    let waiting: Vec<&Sighting> = found
        .iter()
        .copied()
        // nslookup of small images prints `(null)` beside every answer.
        .filter(|it| [&NAME_NOT_RESOLVED, &LOOK_UP_FAILED].contains(&it.signal) && it.get("host") != "(null)")
        .collect();
    let Some(first) = waiting.first() else {
        // Downloads fail with the same message, so a bare error of Python says little.
        let message = "a name could not be resolved: the master's, or that of a server for downloads";
        let bare: Vec<&Sighting> =
            found.into_iter().filter(|it| *it.signal == GAI_ERROR && !got_through(log)).collect();
        return Ok(if bare.is_empty() {
            Vec::new()
        } else {
            vec![Finding::new(Confidence::Possible, message).severity(Severity::Warning).by(log, &bare)]
        });
    };
    let host = first.get("host");
    let lines: u64 = waiting.iter().map(|it| it.count).sum();
    let died = died(log, host);
    // A container that waits for the master's name before the job starts cannot resolve it for a while.
    let from_pytorch = *first.signal == NAME_NOT_RESOLVED;
    let named = log.case.sightings_of(&MASTER_ADDR).find(|it| from_pytorch && names(it.get("host"), host));
    let quotes = waiting.iter().map(|it| &it.quote);
    // An address needs no name server, and `localhost` only lacks an IPv6 address: harmless.
    let harmless = host == "localhost" || ipv4(host).is_some() || got_through(log);
    if harmless || (died.is_none() && named.is_none()) {
        let message = format!(
            "{host} had no address when a rank looked it up (lines: {lines}); jobs wait for the name and then continue"
        );
        let finding = Finding::new(Confidence::Possible, message).severity(Severity::Info).seen_all(quotes);
        return Ok(vec![finding.why("The line is printed while a rank waits for the name of the master, which is normal until all pods have started.")]);
    }
    let reason = match first.get("reason") {
        "" => String::new(),
        reason => format!(" ({reason})"),
    };
    let message = match (&died, named) {
        (Some(_), _) => format!("{host} has no address{reason}, and the master was never reached"),
        (None, _) => format!("MASTER_ADDR is {host}, and that name has no address{reason}"),
    };
    let confidence = if died.is_some_and(|it| *it.signal == CLIENT_TIMED_OUT) {
        Confidence::Certain
    } else {
        Confidence::Likely
    };
    let finding = Finding::new(confidence, message).seen_all(quotes).seen_all(died.map(|it| &it.quote));
    Ok(vec![finding.seen_all(named.map(|it| &it.quote)).about_host(host)])
}

/// The line that says that a rank gave up on the master at `host`.
fn died<'a>(log: &'a Log, host: &str) -> Option<&'a Sighting> {
    log.case.sightings.iter().find(|it| {
        let timed_out = [&CLIENT_TIMED_OUT, &CLIENT_GAVE_UP].contains(&it.signal) && it.get("host") == host;
        // The store of the master counted the ranks that joined.
        let alone = *it.signal == CLIENTS_JOINED;
        // Without an address, the attempt that follows is invalid (22).
        let invalid =
            *it.signal == CLIENT_FAILED && it.get("code") == "22" && without_port(it.get("peer")) == host;
        timed_out || invalid || alone
    })
}

/// Whether a setting names this host, with or without a port.
fn names(setting: &str, host: &str) -> bool {
    setting == host || setting.strip_prefix(host).is_some_and(|it| it.starts_with(':'))
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::testing::{findings, ids};
    use crate::{Confidence, Severity};

    const LINE: &str = "[W socket.cpp:558] [c10d] The IPv6 network addresses of (workers-0-0.workers, 3389) cannot be retrieved (gai error: -2 - Name or service not known).\n";

    #[test]
    fn waiting_is_normal() {
        assert_eq!(findings(&RULE, LINE)[0].severity, Some(Severity::Info));
        let localhost = LINE.replace("workers-0-0.workers", "localhost");
        assert_eq!(findings(&RULE, &localhost)[0].severity, Some(Severity::Info));
    }

    #[test]
    fn fires_when_the_run_died_of_it() {
        let died = format!(
            "{LINE}[E socket.cpp:1028] [c10d] The client socket has timed out after 20000ms while trying to connect to (workers-0-0.workers, 3389).\n"
        );
        assert_eq!(
            (findings(&RULE, &died)[0].severity, findings(&RULE, &died)[0].confidence),
            (None, Confidence::Certain)
        );
        assert_eq!(ids(&died), ["dns-master-addr"]);
        assert_eq!(
            findings(&RULE, "ValueError: host not found: Name or service not known\n")[0].confidence,
            Confidence::Certain
        );
        let invalid = format!(
            "{LINE}[W socket.cpp:767] [c10d] The client socket has failed to connect to [workers-0-0.workers]:3389 (errno: 22 - Invalid argument).\n"
        );
        assert_eq!(findings(&RULE, &invalid)[0].severity, None);
    }

    #[test]
    fn fires_when_the_settings_show_the_name() {
        assert_eq!(
            findings(&RULE, &format!("{LINE}MASTER_ADDR=workers-0-0.workers namespace=train\n"))[0]
                .confidence,
            Confidence::Likely
        );
    }

    #[test]
    fn a_job_that_went_on_is_fine() {
        let log = format!(
            "{LINE}MASTER_ADDR=workers-0-0.workers\n{{'loss': 1.2, 'learning_rate': 2e-05, 'epoch': 0.1}}\n"
        );
        assert_eq!(findings(&RULE, &log)[0].severity, Some(Severity::Info));
    }

    #[test]
    fn a_name_of_digits_is_read_as_an_address() {
        let log = "[W socket.cpp:558] [c10d] The client socket has failed to connect to [::ffff:0.0.0.5]:40323 (errno: 110 - Connection timed out).\n\
                   [E socket.cpp:610] [c10d] The client socket has failed to connect to any network address of (05, 40323).\n";
        assert_eq!(ids(log), ["dns-master-addr"]);
        assert_eq!(
            findings(&RULE, log)[0].message,
            "the master's name is made of digits and was read as the address ::ffff:0.0.0.5"
        );
    }

    #[test]
    fn tools_and_other_programs_ask_for_names() {
        let gave_up = format!(
            "{LINE}[E socket.cpp:610] [c10d] The client socket has failed to connect to any network address of (workers-0-0.workers, 3389).\n"
        );
        assert_eq!(ids(&gave_up), ["dns-master-addr"]);
        let gloo =
            "[enforce fail at device.cc:127] rp != nullptr. Unable to find address for: node-1.example\n";
        assert_eq!(ids(gloo)[0], "dns-master-addr");
        let waits = "nslookup: can't resolve '(null)': Name does not resolve\nnslookup: can't resolve 'job-master-0': Name does not resolve\n";
        assert_eq!(findings(&RULE, waits)[0].severity, Some(Severity::Info));
        let alone = format!(
            "{waits}torch.distributed.DistStoreError: Timed out after 901 seconds waiting for clients. 1/2 clients joined.\n"
        );
        assert_eq!(ids(&alone)[0], "dns-master-addr");
    }
}
