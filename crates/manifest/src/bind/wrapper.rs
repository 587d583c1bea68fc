//! A script that runs a command on the CPUs of its rank, whatever the launcher is.
//!
//! `taskset` is part of util-linux and needs no privilege. A memory policy is not set: Linux takes memory from the node of the CPU that
//! touches it first, and containers often forbid `set_mempolicy` (Docker's default seccomp profile allows it with `CAP_SYS_NICE` only).

use super::{Binding, Pin};

/// The name of the script.
pub(super) const NAME: &str = "bind.sh";

/// The commands that write the script, which finds the number of its rank on the machine in `variable`.
pub(super) fn script(binding: &Binding, variable: &str) -> String {
    let mut text = format!(
        "cat > {NAME} <<'END'\n\
         #!/bin/sh\n\
         # Runs a command on the CPUs next to the GPU of its rank.\n\
         case ${variable} in\n"
    );
    for rank in &binding.ranks {
        let (cpus, comment) = match &rank.pin {
            Pin::Cpus(cpus) => (cpus.to_string(), ""),
            Pin::Node(node) => (format!("$(cat /sys/devices/system/node/node{node}/cpulist)"), ""),
            Pin::Unknown => ("$(cat /sys/devices/system/cpu/online)".to_owned(), "  # not known: all"),
        };
        text.push_str(&format!("{}) cpus={cpus} ;;{comment}\n", rank.local));
    }
    text.push_str(&format!(
        "*) echo \"{NAME}: no CPUs for local rank '${variable}'\" >&2; exit 1 ;;\n\
         esac\n\
         exec taskset -c \"$cpus\" \"$@\"\n\
         END\n\
         chmod +x {NAME}\n"
    ));
    text
}
