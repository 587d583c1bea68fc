//! Links that are slow or lose packets: `tc` with tbf and htb, and `nft`. (Kernels for containers often lack netem.)

use super::{Hosts, run};
use crate::need;

/// A token bucket smaller than one packet of the segmentation offload (64 KiB) would cut it.
const BUCKET: &str = "burst 128kb latency 50ms";

impl Hosts {
    /// Limits what every host sends.
    pub fn shape(&self, rate: &str) {
        for (_, host) in self.iter() {
            run(host
                .command(need("tc"))
                .args(["qdisc", "add", "dev", "eth0", "root", "tbf"])
                .args(["rate", rate, "burst", "32kb", "latency", "50ms"]));
        }
    }

    /// Limits what a host sends and what it receives. A later call replaces an earlier one.
    pub fn limit(&self, number: usize, rate: &str) {
        let tbf = |interface: &str| format!("qdisc replace dev {interface} root tbf rate {rate} {BUCKET}");
        self[number].in_its_network("tc", &tbf("eth0"));
        self.head().in_its_network("tc", &tbf(&format!("eth0.{number}")));
    }

    /// Limits all hosts in this way.
    pub fn limit_all(&self, rate: &str) {
        for (number, _) in self.iter() {
            self.limit(number, rate);
        }
    }

    /// Limits what one host sends to another, and the other to it; everything else that the two send has the other rate.
    /// It replaces the limits of what the two send.
    pub fn limit_link(&self, one: usize, other: usize, rate: &str, everything_else: &str) {
        for (from, to) in [(one, other), (other, one)] {
            let host = &self[from];
            for words in [
                "qdisc replace dev eth0 root handle 1: htb default 1".to_owned(),
                format!(
                    "class replace dev eth0 parent 1: classid 1:1 htb rate {everything_else} burst 128kb"
                ),
                format!("class replace dev eth0 parent 1: classid 1:2 htb rate {rate} burst 128kb"),
                format!(
                    "filter add dev eth0 parent 1: protocol ip u32 match ip dst 10.77.0.{to}/32 flowid 1:2"
                ),
            ] {
                host.in_its_network("tc", &words);
            }
        }
    }

    /// Makes a host lose this share of the packets that it receives from others, in thousandths.
    pub fn lose(&self, number: usize, thousandths: u32) {
        self.drop_packets(number, &format!("numgen random mod 1000 < {thousandths} counter drop"));
    }

    /// Makes a host drop all that it receives, silently.
    pub fn silence(&self, number: usize) {
        self.drop_packets(number, "counter drop");
    }

    fn drop_packets(&self, number: usize, which: &str) {
        let host = &self[number];
        host.in_its_network("nft", "add table inet loss");
        host.in_its_network("nft", "add chain inet loss in { type filter hook input priority 0 ; }");
        host.in_its_network("nft", &format!("add rule inet loss in iifname eth0 {which}"));
    }
}
