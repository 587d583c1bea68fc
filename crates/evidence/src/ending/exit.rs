//! Exit codes and signals, as shells, launchers, schedulers and container runtimes report them.

use super::{Found, Kind, find_ignoring_case, is_whole};

/// Before an exit code, longest first.
static CODES: &[&str] = &[
    "exit status code",
    "exit code",
    "exitcode",
    "exit_code",
    "exit-code",
    "exit status",
    "exit value",
    "return code",
    "returncode",
    "return_code",
    "exited with code",
    "exited with status",
    "exited with",
    "exited (",
    "exit with",
    "exit(",
    "exited:",
    "finished with code",
    "terminated with code",
    "completed with code",
    "failed with code",
    "with rc",
    "failed with status",
];

/// Signals that a program raises by its own fault; the others come from outside.
static OWN: &[i32] = &[4, 5, 6, 7, 8, 11, 31];

static SIGNALS: &[(i32, &str)] = &[
    (1, "SIGHUP"),
    (2, "SIGINT"),
    (3, "SIGQUIT"),
    (4, "SIGILL"),
    (5, "SIGTRAP"),
    (6, "SIGABRT"),
    (7, "SIGBUS"),
    (8, "SIGFPE"),
    (9, "SIGKILL"),
    (11, "SIGSEGV"),
    (13, "SIGPIPE"),
    (14, "SIGALRM"),
    (15, "SIGTERM"),
    (24, "SIGXCPU"),
    (25, "SIGXFSZ"),
    (31, "SIGSYS"),
];

/// `SIGKILL` of 9; empty for a signal without a common name.
pub fn signal_name(number: i32) -> &'static str {
    SIGNALS.iter().find(|it| it.0 == number).map_or("", |it| it.1)
}

/// What a shell prints for a signal.
static SHELL: &[(&str, i32)] = &[
    ("Segmentation fault", 11),
    ("Bus error", 7),
    ("Illegal instruction", 4),
    ("Floating point exception", 8),
    ("Trace/breakpoint trap", 5),
    ("Bad system call", 31),
    ("CPU time limit exceeded", 24),
    ("File size limit exceeded", 25),
];

/// What a shell prints for a signal, and what are ordinary words too: only as the whole message.
static WORDS: &[(&str, i32)] =
    &[("Killed", 9), ("Aborted", 6), ("Terminated", 15), ("Hangup", 1), ("Alarm clock", 14)];

pub(super) fn read(line: &str) -> Option<Found<'_>> {
    let mut found = code(line).or_else(|| shell(line)).or_else(|| signal(line))?;
    let about = about(line);
    found.rank = about.rank;
    found.host = about.host;
    Some(found)
}

/// `exits with return code = -9`, `Exited with exit code 1`, `failed (exitcode: 1)`
fn code(line: &str) -> Option<Found<'_>> {
    for words in CODES {
        let Some(at) = find_ignoring_case(line, words) else { continue };
        let before = line.get(..at)?;
        if before.ends_with(|it: char| it.is_ascii_alphanumeric()) {
            continue;
        }
        let rest = line.get(at + words.len()..)?;
        let digits = rest.trim_start_matches(|it: char| {
            matches!(it, ' ' | ':' | '=' | '(' | '"' | '\'' | '[' | '|' | '\t')
        });
        let digits =
            digits.strip_prefix("status ").or_else(|| digits.strip_prefix("code ")).unwrap_or(digits);
        if rest.len() - digits.len() > 24 {
            continue;
        }
        if let Some(number) = integer(digits) {
            if number == 0 {
                // `ExitCode 0:9` is Slurm's form of a signal.
                let signal = digits.strip_prefix("0:").and_then(integer).filter(|it| *it > 0);
                if let Some(signal) = signal {
                    return Some(by_code(line, -signal));
                }
                return Some(Found { code: Some(0), ..Found::new(Kind::Finished, line) });
            }
            return Some(by_code(line, number));
        }
        if digits.to_ascii_lowercase().starts_with("nonzero")
            || digits.to_ascii_lowercase().starts_with("non-zero")
        {
            return Some(Found::new(Kind::Exit, line));
        }
    }
    ["non-zero status", "non-zero exit", "nonzero exit", "nonzero status", "non-zero code"]
        .iter()
        .any(|it| find_ignoring_case(line, it).is_some())
        .then(|| Found::new(Kind::Exit, line))
}

fn by_code(line: &str, number: i32) -> Found<'_> {
    let signal = match number {
        -64..=-1 => Some(-number),
        129..=192 => Some(number - 128),
        _ => None,
    };
    let kind = match signal {
        Some(it) if OWN.contains(&it) => Kind::Crash,
        Some(_) => Kind::Killed,
        None => Kind::Exit,
    };
    Found { code: Some(signal.map_or(number, |it| -it)), ..Found::new(kind, line) }
}

/// The beginning of a text as a number.
fn integer(text: &str) -> Option<i32> {
    let negative = text.starts_with('-');
    let digits = text.trim_start_matches('-');
    let end = digits.find(|it: char| !it.is_ascii_digit()).unwrap_or(digits.len());
    let after = digits.get(end..)?;
    // `exit code 0x8007` and `1.5` are not exit codes.
    if after.starts_with(['x', 'X'])
        || (after.starts_with('.')
            && after.get(1..2).is_some_and(|it| it.bytes().all(|it| it.is_ascii_digit())))
    {
        return None;
    }
    let number: i32 = digits.get(..end)?.parse().ok()?;
    Some(if negative { -number } else { number })
}

/// `line 3: 4711 Killed   python train.py`, `Segmentation fault (core dumped)`
fn shell(line: &str) -> Option<Found<'_>> {
    for (words, signal) in SHELL {
        if let Some(at) = find_ignoring_case(line, &words.to_ascii_lowercase())
            && is_whole(line, at, words.len())
        {
            return Some(Found { code: Some(-signal), ..Found::new(Kind::Crash, line.get(at..)?) });
        }
    }
    for (word, signal) in WORDS {
        let Some(at) = line.find(word) else { continue };
        if !is_whole(line, at, word.len()) {
            continue;
        }
        let before = line.get(..at)?.trim_end();
        let after = line.get(at + word.len()..)?;
        let alone = after.trim().is_empty()
            || after.trim_start().starts_with("(core dumped)")
            || after.trim_start().starts_with("(signal")
            || after.starts_with("  ")
            || after.starts_with('.') && after.len() == 1
            || (*word == "Killed" && after.starts_with(" process"));
        let opens = before.is_empty()
            || before.ends_with([':', ']', ')', '|', '>'])
            || before.ends_with(|it: char| it.is_ascii_digit())
            || (*word == "Killed" && (before.ends_with("was") || before.ends_with("memory")));
        if alone && opens {
            let kind = if OWN.contains(signal) { Kind::Crash } else { Kind::Killed };
            return Some(Found { code: Some(-signal), ..Found::new(kind, line.get(at..)?) });
        }
    }
    let dumped = find_ignoring_case(line, "core dumped")?;
    Some(Found::new(Kind::Crash, line.get(dumped..)?))
}

/// `exited on signal 9`, `Caught signal 11`, `received SIGTERM`
fn signal(line: &str) -> Option<Found<'_>> {
    let spoken = |verbs: &[&str]| verbs.iter().any(|it| find_ignoring_case(line, it).is_some());
    let number = ["signal: ", "signal ", "signal=", "sig=", "sig "].iter().find_map(|it| {
        let at = find_ignoring_case(line, it)?;
        let rest = line.get(at + it.len()..)?;
        let rest = rest.trim_start_matches(|it: char| !it.is_ascii_digit() && it.is_ascii_punctuation());
        let number = integer(rest)?;
        (1..=64).contains(&number).then_some(number)
    });
    let named = SIGNALS.iter().find_map(|(number, name)| {
        let at = line.find(name)?;
        is_whole(line, at, name.len()).then_some(*number)
    });
    let number = number.or(named)?;
    // Handlers that are installed and signals that are sent on purpose are no ends of this process.
    if spoken(&[
        "handler installed",
        "installed",
        "registered",
        "registering",
        "handling of",
        "will be",
        "sigprocmask",
        "ignoring",
        "ignored",
        "masked",
        "to stop",
        "use sig",
        "send sig",
        "waiting for sig",
    ]) {
        return None;
    }
    let ended = spoken(&[
        "exit",
        "exited",
        "terminated",
        "killed",
        "caught",
        "received",
        "got",
        "died",
        "crash",
        "abort",
        "fatal",
        "failed",
        "closing signal",
        "killing",
        "by signal",
        "on signal",
        "with signal",
        "sending",
        "process received",
        "terminating",
        "shutting down",
        "interrupted",
        "***",
        "signal:",
    ]);
    if !ended && line.trim() != signal_name(number) {
        return None;
    }
    let kind = if OWN.contains(&number) { Kind::Crash } else { Kind::Killed };
    Some(Found { code: Some(-number), ..Found::new(kind, line) })
}

struct About<'a> {
    rank: Option<u32>,
    host: Option<&'a str>,
}

/// Whom a launcher's line is about: `srun: error: node-3: task 12: ...`, `process rank 3 with PID 7 on node n2`.
fn about(line: &str) -> About<'_> {
    let number_after = |words: &str| {
        let at = find_ignoring_case(line, words)?;
        integer(line.get(at + words.len()..)?).and_then(|it| u32::try_from(it).ok())
    };
    let word_after = |words: &str| {
        let at = find_ignoring_case(line, words)?;
        let rest = line.get(at + words.len()..)?;
        let end = rest
            .find(|it: char| it.is_whitespace() || matches!(it, ':' | ',' | ';' | ')'))
            .unwrap_or(rest.len());
        rest.get(..end).filter(|it| !it.is_empty())
    };
    let rank = ["process rank ", " task ", "global_rank: ", "[rank", " rank "]
        .iter()
        .find_map(|it| number_after(it));
    let host = if line.starts_with("srun: error: ") {
        word_after("srun: error: ")
    } else {
        word_after(" on node ").or_else(|| word_after(" on host "))
    };
    About { rank, host }
}
