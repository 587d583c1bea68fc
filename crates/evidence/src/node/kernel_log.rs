//! What the kernel's messages say about GPUs and the PCI bus.

#![expect(missing_docs, reason = "most fields are said by their name and unit")]

use serde::{Deserialize, Serialize};

/// Xid errors of the NVIDIA driver and errors of the PCI bus.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct KernelLog {
    /// How many messages were read.
    pub messages: u64,
    /// The time of the oldest message that is still there, in seconds since the start of the kernel. Older ones were overwritten.
    pub oldest_s: Option<u64>,
    pub xids: Vec<Xid>,
    pub aer: Vec<Aer>,
    /// Kills for lack of memory.
    pub oom_kills: u64,
}

/// One kind of error on one GPU.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Xid {
    pub code: u64,
    /// `0000:18:00`
    pub gpu: String,
    pub count: u64,
    /// The last one, in seconds since the start of the kernel.
    pub last_s: Option<u64>,
    /// The text of the last one.
    pub text: String,
}

/// Errors of one PCI device.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Aer {
    /// `0000:17:00.0`
    pub device: String,
    pub severity: AerSeverity,
    pub count: u64,
    pub last_s: Option<u64>,
}

/// What the device could do about an error.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AerSeverity {
    /// The link repeated the packet.
    #[default]
    Corrected,
    NonFatal,
    Fatal,
}

/// How many kinds of errors are kept; a broken machine repeats few.
const MOST_KINDS: usize = 256;
/// How much of a message is kept.
const MOST_TEXT: usize = 160;

impl KernelLog {
    /// Adds a record of `/dev/kmsg`: `6,1234,98765432,-;NVRM: Xid (PCI:0000:18:00): 79, ...`, its time in microseconds.
    pub fn add_record(&mut self, record: &str) {
        let Some((head, text)) = record.split_once(';') else { return };
        let micros = head.split(',').nth(2).and_then(|it| it.parse::<u64>().ok());
        self.add(micros.map(|it| it / 1_000_000), text.lines().next().unwrap_or_default());
    }

    /// Adds a message.
    pub fn add(&mut self, at_s: Option<u64>, text: &str) {
        self.messages += 1;
        self.oldest_s = match (self.oldest_s, at_s) {
            (Some(old), Some(new)) => Some(old.min(new)),
            (old, new) => old.or(new),
        };
        if let Some((gpu, code, rest)) = xid(text) {
            self.add_xid(gpu, code, rest, at_s);
        } else if let Some((device, severity)) = aer(text) {
            self.add_aer(device, severity, at_s);
        } else if text.contains("Out of memory: Killed process")
            || text.contains("Memory cgroup out of memory: Killed process")
        {
            self.oom_kills += 1;
        }
    }

    fn add_xid(&mut self, gpu: &str, code: u64, text: &str, at_s: Option<u64>) {
        let text: String = text.chars().take(MOST_TEXT).collect();
        if let Some(known) = self.xids.iter_mut().find(|it| it.code == code && it.gpu == gpu) {
            known.count += 1;
            known.last_s = at_s.or(known.last_s);
            known.text = text;
        } else if self.xids.len() < MOST_KINDS {
            self.xids.push(Xid { code, gpu: gpu.to_owned(), count: 1, last_s: at_s, text });
        }
    }

    fn add_aer(&mut self, device: &str, severity: AerSeverity, at_s: Option<u64>) {
        if let Some(known) = self.aer.iter_mut().find(|it| it.device == device && it.severity == severity) {
            known.count += 1;
            known.last_s = at_s.or(known.last_s);
        } else if self.aer.len() < MOST_KINDS {
            self.aer.push(Aer { device: device.to_owned(), severity, count: 1, last_s: at_s });
        }
    }
}

/// GPU, number and the rest of `NVRM: Xid (PCI:0000:18:00): 79, pid=..., GPU has fallen off the bus.`
fn xid(text: &str) -> Option<(&str, u64, &str)> {
    let (_, rest) = text.split_once("NVRM: Xid (")?;
    let (gpu, rest) = rest.split_once("): ")?;
    let gpu = gpu.strip_prefix("PCI:").unwrap_or(gpu).split_whitespace().next()?;
    let digits = rest.find(|it: char| !it.is_ascii_digit()).unwrap_or(rest.len());
    let (code, rest) = rest.split_at(digits);
    (gpu.len() <= 32).then_some(())?;
    Some((gpu, code.parse().ok()?, rest.trim_start_matches([',', ' '])))
}

/// Device and severity of `pcieport 0000:17:00.0: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)`. Before 6.10
/// corrected errors are `severity=Corrected`, later `severity=Correctable`.
fn aer(text: &str) -> Option<(&str, AerSeverity)> {
    let (head, rest) = text.split_once(": PCIe Bus Error: severity=")?;
    let device = head.split_whitespace().next_back().filter(|it| it.len() <= 32)?;
    let severity = match rest.split(',').next()? {
        it if it.starts_with("Correct") => AerSeverity::Corrected,
        it if it.contains("Non-Fatal") => AerSeverity::NonFatal,
        it if it.contains("Fatal") => AerSeverity::Fatal,
        _ => return None,
    };
    Some((device, severity))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{AerSeverity, KernelLog};

    #[test]
    fn records_of_the_kernel() {
        let mut log = KernelLog::default();
        for record in [
            "6,1,1500000,-;Linux version 6.1.0",
            "4,2,90000000,-;NVRM: Xid (PCI:0000:18:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.\n SUBSYSTEM=pci",
            "4,3,95000000,-;NVRM: Xid (PCI:0000:18:00): 79, pid=1, again",
            "4,4,96000000,-;pcieport 0000:17:00.0: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)",
            "4,5,97000000,-;pcieport 0000:17:00.0: PCIe Bus Error: severity=Correctable, type=Data Link Layer, (Transmitter ID)",
            "3,6,98000000,-;nvidia 0000:18:00.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer",
            "3,7,99000000,-;Memory cgroup out of memory: Killed process 4242 (python)",
            "no record at all",
        ] {
            log.add_record(record);
        }
        assert_eq!((log.messages, log.oldest_s, log.oom_kills), (7, Some(1), 1));
        let xid = &log.xids[0];
        assert_eq!((xid.code, &*xid.gpu, xid.count, xid.last_s), (79, "0000:18:00", 2, Some(95)));
        assert_eq!(log.aer.len(), 2, "{:?}", log.aer);
        assert_eq!((log.aer[0].severity, log.aer[0].count), (AerSeverity::Corrected, 2));
        assert_eq!((log.aer[1].severity, &*log.aer[1].device), (AerSeverity::Fatal, "0000:18:00.0"));
    }

    proptest! {
        #[test]
        fn no_record_panics(text in "\\PC{0,80}", tail in "(NVRM: Xid \\(PCI|: PCIe Bus Error: severity=)\\PC{0,40}") {
            let mut log = KernelLog::default();
            log.add_record(&text);
            log.add_record(&format!("1,2,3,-;{tail}"));
            log.add_record(&format!("1,2,99999999999999999999,-;{text}{tail}"));
        }
    }
}
