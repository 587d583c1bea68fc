//! The topology file, or the graph file, does not match the machine.

use evidence::signals::topology_file::{ATTRIBUTE_MISSING, GRAPH_BROKEN, XML_BROKEN};
use evidence::{Sighting, Signal, Source};

use crate::{Check, Checked, Confidence, Finding, Log, Role, Rule, Severity};

/// See the module documentation.
pub static RULE: Rule = Rule {
    id: "topo-file-malformed",
    title: "NCCL cannot use the topology file",
    severity: Severity::Error,
    role: Role::Cause,
    needs: &[Source::JobOutput],
    why: "NCCL completes a topology file with what it finds for the GPUs in use. A file that is broken, or that describes sockets whose \
          GPUs are not visible, leaves gaps, and the setup fails.",
    fix: "Unset NCCL_TOPO_FILE and NCCL_GRAPH_FILE, also in /etc/nccl.conf and ~/.nccl.conf, and check whether the job starts. On AWS use \
          aws-ofi-nccl 1.11 or later, which creates the p5 topology for the GPUs in use instead of a fixed file (1.13.2 is better).",
    references: &[
        "https://github.com/aws/aws-ofi-nccl/issues/785",
        "https://github.com/NVIDIA/nccl/issues/379",
        "https://github.com/NVIDIA/nccl/issues/1008",
    ],
    checks: &[Check::Log(check)],
};

fn check(log: &Log) -> Checked {
    let found = log.find_signals(&[&XML_BROKEN, &ATTRIBUTE_MISSING, &GRAPH_BROKEN], Source::JobOutput)?;
    let of = |signal: &Signal| -> Vec<&Sighting> {
        found.iter().copied().filter(|it| it.signal == signal).collect()
    };
    let given = log.job.settings.named("NCCL_TOPO_FILE").next();
    let broken: Vec<_> =
        of(&XML_BROKEN).into_iter().filter(|it| !it.get("problem").starts_with("Ignoring extra")).collect();
    // At level INFO NCCL only searches for an attribute; and other XML than a topology has other nodes.
    let matters = |it: &&Sighting| {
        !it.quote.text.contains("NCCL INFO")
            && matches!(
                it.get("node"),
                "" | "system" | "cpu" | "pci" | "gpu" | "nic" | "net" | "nvlink" | "c2c"
            )
    };
    let missing: Vec<_> = of(&ATTRIBUTE_MISSING).into_iter().filter(matters).collect();
    let graph = of(&GRAPH_BROKEN);
    let finding = if let Some(first) = missing.first() {
        let (attribute, node) = (first.get("attribute"), first.get("node"));
        let message = match (attribute, node) {
            (_, "") => "the topology lacks an attribute, whose name is cut off".to_owned(),
            ("arch", "cpu") => {
                "the topology file names a CPU none of whose GPUs is in use, so NCCL does not know the CPU's architecture"
                    .to_owned()
            }
            _ => format!("the topology has a {node} without {attribute}"),
        };
        // Without a file, a NIC without an address is a fault of NCCL itself (network over USB, 2.19).
        let confidence = match (given.is_some(), node) {
            (true, _) => Confidence::Certain,
            (false, "nic" | "") => Confidence::Possible,
            (false, _) => Confidence::Likely,
        };
        Finding::new(confidence, message).by(log, &missing)
    } else if let Some(first) = graph.first() {
        let message = match first.get("device") {
            "" => "NCCL cannot use the file that NCCL_GRAPH_FILE names".to_owned(),
            device => format!("the graph file names GPU {device}, which is not in this job"),
        };
        let fix = "Unset NCCL_GRAPH_FILE (also in /etc/nccl.conf and ~/.nccl.conf): a graph is valid for one set of GPUs only.";
        Finding::new(Confidence::Certain, message).by(log, &graph).fix(fix)
    } else if let Some(first) = broken.first() {
        let problem = first.get("problem").trim_end_matches('.');
        let detail = if problem.is_empty() { String::new() } else { format!(" ({problem})") };
        Finding::new(Confidence::Certain, format!("the topology file is not XML that NCCL can read{detail}"))
            .by(log, &broken)
    } else if let Some(quote) = log.returned_from("graph/topo.cc", 3) {
        let message =
            "NCCL could not read the topology; the warning that names the reason is not in the input";
        Finding::new(Confidence::Possible, message).seen(quote)
    } else {
        return Ok(Vec::new());
    };
    let finding = match given {
        Some(set) => finding.seen_all(set.quote()).about_file(set.text()),
        None => finding,
    };
    Ok(vec![finding])
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::testing::{findings, quiet};

    #[test]
    fn fires_on_gaps_in_the_file() {
        for text in [
            "a:75:95 [2] graph/xml.h:101 NCCL WARN Attribute arch of node cpu not found\na:75:95 [2] NCCL INFO graph/topo.cc:493 -> 3\n",
            "graph/xml.h:77 NCCL WARN Attribute arch of node cpu not found\n",
        ] {
            let found = findings(&RULE, text);
            assert!(found[0].message.starts_with("the topology file names a CPU"), "{text}");
        }
    }

    #[test]
    fn fires_on_broken_xml_and_foreign_graphs() {
        let log = "a:1:2 [0] NCCL INFO NCCL_TOPO_FILE set by environment to /x/topo.xml\n\
                   a:1:2 [0] graph/xml.cc:55 NCCL WARN XML Parse : Expected (double) quote.\n";
        assert_eq!(
            findings(&RULE, log)[0].message,
            "the topology file is not XML that NCCL can read (Expected (double) quote)"
        );
        let graph = "a:1:2 [0] graph/search.cc:642 NCCL WARN XML Import Channel : dev 2 not found.\n";
        assert_eq!(findings(&RULE, graph)[0].message, "the graph file names GPU 2, which is not in this job");
    }

    #[test]
    fn extra_attributes_are_harmless() {
        quiet(&RULE, "a:1:2 [0] NCCL INFO XML Parse : Ignoring extra attributes (max 16)\n");
        quiet(&RULE, "a:1:2 [0] NCCL INFO Attribute coll of node net not found\n");
        quiet(&RULE, "a:1:2 [0] graph/xml.h:82 NCCL WARN Attribute ngpus of node algo not found\n");
        quiet(&RULE, "a:1:2 [0] NCCL INFO NCCL_TOPO_FILE set by environment to /x/topo.xml\n");
    }
}
