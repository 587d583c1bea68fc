//! An adapter reorders writes that NCCL expects in order.

use evidence::signals::ib::{SIZE_MISMATCH, WRITE_ORDERING};
use evidence::{Sighting, Source};

use crate::{Check, Checked, Confidence, Finding, Log, Role, Rule, Severity};

/// See the module documentation.
pub static RULE: Rule = Rule {
    id: "nic-relaxed-ordering-forced",
    title: "an adapter is forced to reorder its writes",
    severity: Severity::Error,
    role: Role::Cause,
    needs: &[Source::JobOutput],
    why: "NCCL tells the adapter which memory may be written out of order. With PCI_WR_ORDERING=force_relax the adapter does it \
          everywhere, so a sender reads requests that are half written: invalid sizes and addresses, or wrong results.",
    fix: "`mst start; mlxconfig -d DEVICE set PCI_WR_ORDERING=per_mkey`, then reset the adapter or reboot. NCCL 2.12 and later request \
          relaxed ordering themselves where it is safe (`[RO]` in the list of adapters).",
    references: &["https://github.com/NVIDIA/nccl/issues/531", "https://github.com/NVIDIA/nccl/issues/615"],
    checks: &[Check::Log(check)],
};

fn check(log: &Log) -> Checked {
    let found = log.find_signals(&[&SIZE_MISMATCH, &WRITE_ORDERING], Source::JobOutput)?;
    let torn: Vec<&Sighting> = found.iter().copied().filter(|it| is_torn(it)).collect();
    let forced = found.iter().find(|it| *it.signal == WRITE_ORDERING && is_forced(it.get("value")));
    if let Some(forced) = forced {
        let failed: Vec<&Sighting> = found.iter().copied().filter(|it| *it.signal == SIZE_MISMATCH).collect();
        let (severity, message) = if failed.is_empty() {
            (Severity::Warning, "an adapter is set to force_relax".to_owned())
        } else {
            (
                Severity::Error,
                "an adapter is set to force_relax, and a receive request arrived in pieces".to_owned(),
            )
        };
        return Ok(vec![
            Finding::new(Confidence::Certain, message)
                .severity(severity)
                .seen(&forced.quote)
                .by(log, &failed),
        ]);
    }
    let Some(first) = torn.first() else { return Ok(Vec::new()) };
    let message = format!(
        "a receive request is not valid (size {}), as if it had been read half written",
        first.get("remote")
    );
    // `posted incorrect receive info` is also printed for programs that overwrite NCCL's memory.
    let compared = torn.iter().any(|it| it.number("local").is_some());
    let confidence = if compared { Confidence::Likely } else { Confidence::Possible };
    Ok(vec![
        Finding::new(confidence, message)
            .by(log, &torn)
            .or("config-mismatch-between-ranks")
            .or("collective-mismatch"),
    ])
}

fn is_forced(value: &str) -> bool {
    let value = value.trim_start_matches([' ', '=', ':']);
    value.starts_with("force") || value.starts_with('1')
}

/// Whether a receive request cannot be meant: it is big enough and was refused, its number is wrong, or a part is zero.
pub(crate) fn is_torn(sighting: &Sighting) -> bool {
    if *sighting.signal != SIZE_MISMATCH {
        return false;
    }
    let (local, remote) = (sighting.number("local"), sighting.number("remote"));
    let fits = local.zip(remote).is_some_and(|(local, remote)| local <= remote);
    let sequence = sighting.get("sequence").split_once('/').is_some_and(|(theirs, ours)| theirs != ours);
    let zero = ["address", "rkey"].iter().any(|it| sighting.get(it) == "0");
    // `posted incorrect receive info` has no local size: it is printed only for such requests.
    fits || sequence || zero || (local.is_none() && remote.is_some())
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::testing::{findings, quiet};
    use crate::{Confidence, Severity};

    const OLD: &str = "n:1:2 [0] transport/net_ib.cc:665 NCCL WARN NET/IB : collective mismatch error local size 32768 remote 1048576 addr 7ff7d1530000 rkey 2553d seq 14/14\n";

    #[test]
    fn fires_on_requests_that_make_no_sense() {
        assert_eq!(findings(&RULE, OLD)[0].confidence, Confidence::Likely);
        assert_eq!(
            findings(&RULE, &OLD.replace("32768", "2048576").replace("seq 14/14", "seq 14/1c")).len(),
            1
        );
        let newer = "n:1:2 [0] NCCL WARN NET/IB : req 0/1 tag 0 peer 10.0.0.6<5> posted incorrect receive info: size 0 addr 0 rkey 0\n";
        assert_eq!(findings(&RULE, newer).len(), 1);
    }

    #[test]
    fn fires_on_the_setting() {
        assert_eq!(
            findings(
                &RULE,
                &format!("{OLD}         PCI_WR_ORDERING                             force_relax(1)\n")
            )[0]
            .confidence,
            Confidence::Certain
        );
        assert_eq!(findings(&RULE, "PCI_WR_ORDERING force_relax(1)\n")[0].severity, Some(Severity::Warning));
    }

    #[test]
    fn quiet_on_a_plain_mismatch_and_on_the_default() {
        quiet(
            &RULE,
            "n:1:2 [0] NCCL WARN NET/IB : req 0/1 tag 0 peer 10.0.0.6<5> collective mismatch error, local size 491520 remote size 65536\n",
        );
        quiet(&RULE, "PCI_WR_ORDERING                             per_mkey(0)\n");
    }
}
