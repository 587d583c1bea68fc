//! Host names: where they appear, and what only looks like one.

use std::collections::BTreeSet;

use super::names::{Hit, Kind};
use super::scan::{before, begins_with_port, byte, is_label, is_name, is_number, run};
use super::secrets::key_before;

/// Names in positions where only a host can be.
pub(super) fn hosts_in(text: &str) -> Vec<&str> {
    let mut names = Vec::new();
    let mut at = 0;
    while at < text.len() {
        let end = run(text, at, is_name);
        if end == at {
            at += 1;
            continue;
        }
        if let Some(code) = (at..end).find(|it| before(text, *it) == Some(0x1b) && *it > at) {
            at = code;
            continue;
        }
        if let (Some(before), Some(name), Some(after)) = (text.get(..at), text.get(at..end), text.get(end..))
        {
            let name = name.trim_end_matches(['.', '-']);
            if is_named(before, name, after, text) {
                names.push(name);
            }
        }
        at = end;
    }
    // `mpirun --host a:8,b:8`
    for flag in [" -H ", " --host ", " --hosts ", "--host=", "--hosts="] {
        let Some((_, rest)) = text.split_once(flag) else { continue };
        let list = rest.split_ascii_whitespace().next().unwrap_or_default();
        names
            .extend(list.split(',').filter_map(|it| it.split(':').next()).filter(|it| looks_like_a_host(it)));
    }
    names
}

/// Not a word of a sentence.
pub(super) fn looks_like_a_host(name: &str) -> bool {
    name.bytes().any(|it| it.is_ascii_digit() || matches!(it, b'-' | b'.'))
}

pub(super) fn is_named(before: &str, name: &str, after: &str, line: &str) -> bool {
    let like_a_host = looks_like_a_host(name);
    // node-0:191:726 [0] NCCL INFO
    let thread = || {
        let mut parts = after.strip_prefix(':').unwrap_or_default().splitn(2, ':');
        let (pid, rest) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        let tid = run(rest, 0, |it| it.is_ascii_digit());
        let next = rest.get(tid..).unwrap_or_default();
        is_number(pid)
            && tid > 0
            && (next.starts_with(" [") || next.starts_with(" NCCL "))
            && !is_date(name)
            && !is_source(name)
    };
    // NCCL WARN socketProgress: Connection closed by remote peer node-2<55248>
    let socket = || {
        let digits = run(after, 1, |it| it.is_ascii_digit());
        let closed = after.starts_with('<') && digits > 1 && byte(after, digits) == Some(b'>');
        closed
            && !before.ends_with(['%', '>'])
            && !before.ends_with("::")
            && (like_a_host || ["peer ", "to ", "from ", "with "].iter().any(|it| before.ends_with(it)))
    };
    // #  Rank  0 Group  0 Pid 120 on node-0 device  0 [0x8d] NVIDIA H100
    let tested = || {
        before.trim_end().ends_with(" on")
            && after.trim_start().starts_with("device ")
            && line.contains("Pid")
    };
    // The client socket has failed to connect to [node-0]:29500, (node-0, 29500), host node-0:29500
    let asked = || {
        let bracketed = before.ends_with('[') && after.strip_prefix(']').is_some_and(begins_with_port);
        let paired = before.ends_with('(')
            && after.strip_prefix(", ").is_some_and(|it| it.starts_with(|it: char| it.is_ascii_digit()))
            && (before.contains("address") || before.contains("connect"));
        bracketed || paired || (before.ends_with("host ") && begins_with_port(after))
    };
    // tcp://node-0:29500, [pod/llama-0/trainer]
    let addressed = || before.ends_with("tcp://") || (before.ends_with("pod/") && like_a_host);
    let assigned =
        || key_before(before).is_some_and(|(key, _, _)| is_host_key(key) && (like_a_host || key != "host"));
    thread()
        || socket()
        || tested()
        || asked()
        || addressed()
        || assigned()
        || is_named_by_launcher(before, name, after)
        || is_named_by_system(before, name, after)
}

/// Messages of Slurm, MPI and torchrun.
fn is_named_by_launcher(before: &str, name: &str, after: &str) -> bool {
    let follows = |texts: &[&str]| texts.iter().any(|it| before.ends_with(it));
    let precedes = |texts: &[&str]| texts.iter().any(|it| after.starts_with(it));
    let has_letter = name.bytes().any(|it| it.is_ascii_alphabetic());
    // srun: error: hopper: task 3: Killed
    let task = follows(&["srun: error: "]) && precedes(&[": task ", ": tasks "]);
    // slurmstepd: error: *** STEP 12.0 ON hopper CANCELLED AT 2026-01-01T00:00:00 ***
    let cancelled = follows(&[" ON "]) && precedes(&[" CANCELLED"]);
    let lost =
        follows(&["Node failure on ", "RUNNING AT "]) || (follows(&["failed on node "]) && precedes(&[":"]));
    // mpirun noticed that process rank 3 with PID 0 on node hopper exited on signal 9
    let exited =
        follows(&[" on node "]) && (precedes(&[" exited"]) || (has_letter && looks_like_a_host(name)));
    // `  host      : hopper`, in torchrun's summary of failures
    let summary =
        before.strip_suffix(": ").is_some_and(|it| it.ends_with("  ") && it.trim_end().ends_with("host"));
    // [hopper:4711] *** Process received signal ***, [hopper:4711:0:4711] Caught signal 11
    let traced = || {
        let Some((numbers, rest)) = after.strip_prefix(':').and_then(|it| it.split_once(']')) else {
            return false;
        };
        let count = numbers.split(':').count();
        before.ends_with('[')
            && has_letter
            && numbers.split(':').all(is_number)
            && (count > 1 || [" *** ", " Signal", " [ ", " [["].iter().any(|it| rest.starts_with(it)))
            && !is_source(name)
    };
    task || cancelled || lost || exited || summary || traced()
}

/// `Nov 15 02:56:21 hopper kernel: NVRM: Xid ...`, as the system's log has it.
fn is_named_by_system(before: &str, name: &str, after: &str) -> bool {
    static DAEMONS: [&str; 5] = [" kernel: ", " slurmd[", " slurmstepd[", " systemd[", " nv-fabricmanager["];
    let time = before.strip_suffix(' ').and_then(|it| it.rsplit(' ').next()).unwrap_or_default();
    let timed =
        time.bytes().filter(|it| *it == b':').count() >= 2 && time.bytes().any(|it| it.is_ascii_digit());
    // `INFO` is the level of a message.
    let named = name.bytes().any(|it| it.is_ascii_lowercase()) || looks_like_a_host(name);
    timed && named && !is_number(name) && DAEMONS.iter().any(|it| after.starts_with(it))
}

/// Variables and settings that hold a host.
pub(super) fn is_host_key(key: &str) -> bool {
    let key = key.trim_start_matches('-').to_ascii_lowercase().replace('-', "_");
    matches!(
        key.as_str(),
        "master_addr"
            | "nccl_hostid"
            | "nccl_comm_id"
            | "hostname"
            | "host"
            | "nodename"
            | "rdzv_endpoint"
            | "slurmd_nodename"
            | "node_name"
    )
}

/// The hosts of `gpu[001-004,7],login`; a name that is not a list is returned as it is.
pub(super) fn host_names(list: &str) -> Vec<String> {
    /// More hosts than this are a mistake or an attack.
    const MOST: usize = 8192;
    let mut names = Vec::new();
    let mut depth = 0_u32;
    let items = list.split(|it: char| {
        depth = if it == '[' { depth + 1 } else { depth.saturating_sub(u32::from(it == ']')) };
        it == ',' && depth == 0
    });
    for item in items {
        let Some((prefix, (ranges, suffix))) =
            item.split_once('[').and_then(|it| Some((it.0, it.1.split_once(']')?)))
        else {
            names.push(item.to_owned());
            continue;
        };
        for range in ranges.split(',') {
            let (first, end) = range.split_once('-').unwrap_or((range, range));
            let (Ok(from), Ok(to)) = (first.parse::<u64>(), end.parse::<u64>()) else { continue };
            let room = MOST.saturating_sub(names.len());
            let width = first.len();
            names.extend((from..=to).take(room).map(|it| format!("{prefix}{it:0width$}{suffix}")));
        }
    }
    names
}

/// The value of `SLURM_NODELIST=gpu[001-004]`, or `gpu[001-004]` of `srun: error: gpu[001-004]: tasks 0-31: Killed`.
pub(super) fn host_list(text: &str, at: usize) -> Option<Hit> {
    if text.get(..at)?.ends_with("srun: error: ") {
        let end = run(text, at, |it| is_name(it) || b"[],".contains(&it));
        let list = text.get(at..end).filter(|it| it.contains(['[', ',']))?;
        return text.get(end..)?.starts_with(": task").then(|| Hit {
            kind: Kind::Host,
            key: list.to_owned(),
            end,
        });
    }
    if !matches!(before(text, at)?, b'=' | b'"' | b'\'' | b' ') {
        return None;
    }
    let (key, _, _) = key_before(text.get(..at)?)?;
    if !key.to_ascii_lowercase().ends_with("nodelist") {
        return None;
    }
    let end = run(text, at, |it| is_name(it) || b"[],".contains(&it));
    (end > at).then(|| Hit { kind: Kind::Host, key: text.get(at..end).unwrap_or_default().to_owned(), end })
}

/// Whether a label can be a host name.
pub(super) fn is_host_label(label: &str) -> bool {
    let well_formed =
        !label.is_empty() && label.bytes().all(is_label) && label.bytes().any(|it| it.is_ascii_alphabetic());
    well_formed && !matches!(label, "localhost" | "unknown" | "none" | "null")
}

/// `ip-10-0-5-28` and `i-0123456789abcdef0` are hosts wherever they appear.
pub(super) fn is_generated_host(label: &str) -> bool {
    if let Some(rest) = label.strip_prefix("ip-") {
        let parts: Vec<&str> = rest.split('-').collect();
        return parts.len() == 4 && parts.iter().all(|it| it.parse::<u8>().is_ok());
    }
    label
        .strip_prefix("i-")
        .is_some_and(|it| matches!(it.len(), 8 | 17) && it.bytes().all(|it| it.is_ascii_hexdigit()))
}

/// Where a name ends together with its domain.
pub(super) fn qualified(text: &str, end: usize) -> usize {
    let more = text.get(end..run(text, end, is_name)).unwrap_or_default();
    if !more.starts_with('.')
        || !more.get(1..).is_some_and(|it| it.starts_with(|it: char| it.is_ascii_alphanumeric()))
    {
        return end;
    }
    end + more.trim_end_matches(['.', '-', '_']).len()
}

/// Whether an ambiguous word is a host name here.
pub(super) fn is_host_place(text: &str, at: usize, end: usize, name: &str) -> bool {
    let (Some(before), Some(after)) = (text.get(..at), text.get(end..)) else { return false };
    // `rank 3 on NAME`, as plumb writes it.
    let counted =
        || before.strip_suffix(" on ").is_some_and(|it| it.ends_with(|it: char| it.is_ascii_digit()));
    begins_with_port(after)
        || is_named(before, name, after, text)
        || (counted() && (name.len() > 2 || after.is_empty()))
}

pub(super) fn is_date(name: &str) -> bool {
    let mut parts = name.splitn(3, '-');
    let mut next = |length: usize| parts.next().is_some_and(|it| it.len() == length && is_number(it));
    next(4) && next(2) && parts.next().is_some()
}

pub(super) fn is_source(name: &str) -> bool {
    name.rsplit_once('.').is_some_and(|it| {
        matches!(it.1, "c" | "cc" | "cpp" | "cu" | "cuh" | "h" | "hpp" | "py" | "go" | "rs")
    })
}

/// Words that plumb or NCCL use themselves.
pub(super) fn vocabulary() -> BTreeSet<&'static str> {
    static MORE: &str = "all and channel comm container cpu cuda device error file from gpu head host info init job \
        line main master memory nccl net network nic node not pid pod process rank ring root send \
        server socket test the trainer training tree version via warning worker";
    let all = rules::all().iter().filter(|it| it.log().is_some());
    let texts = all.flat_map(|it| [it.title, it.why, it.fix]);
    texts
        .flat_map(|it| it.split(|it: char| !it.is_ascii_alphabetic()))
        .chain(MORE.split_ascii_whitespace())
        .collect()
}
