//! The codes that messages carry: CUDA errors, errno, completion statuses and others.
//!
//! Each table is a file of `data/values/`, with the source of its numbers and texts. Meaning and remedy are those of a code without
//! its message: what a message with this code means is said by its family or by a rule.

use std::collections::HashMap;
use std::sync::OnceLock;

use serde::Deserialize;

/// A set of codes that belong together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Table {
    /// Errors of the CUDA runtime and driver.
    Cuda,
    /// Errors of system calls.
    Errno,
    /// Completion statuses of RDMA verbs.
    VerbsStatus,
    /// Asynchronous events of RDMA verbs.
    VerbsEvent,
    /// Errors of libfabric's EFA provider.
    Efa,
    /// Errors of libfabric above those of errno.
    Libfabric,
    /// Results of NCCL's functions.
    NcclResult,
    /// Results of NVML's functions.
    Nvml,
    /// Errors of a GPU that the NVIDIA driver reports by number.
    Xid,
    /// Exit codes of a process.
    Exit,
    /// Signals.
    Signal,
}

impl Table {
    /// All tables.
    pub const ALL: [Self; 11] = [
        Self::Cuda,
        Self::Errno,
        Self::VerbsStatus,
        Self::VerbsEvent,
        Self::Efa,
        Self::Libfabric,
        Self::NcclResult,
        Self::Nvml,
        Self::Xid,
        Self::Exit,
        Self::Signal,
    ];

    /// What a code of this table is called in a sentence.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Cuda => "CUDA error",
            Self::Errno => "errno",
            Self::VerbsStatus => "completion status of an RDMA adapter",
            Self::VerbsEvent => "event of an RDMA adapter",
            Self::Efa => "error of libfabric's EFA provider",
            Self::Libfabric => "libfabric error",
            Self::NcclResult => "result of NCCL",
            Self::Nvml => "result of NVML",
            Self::Xid => "Xid of the NVIDIA driver",
            Self::Exit => "exit code",
            Self::Signal => "signal",
        }
    }

    const fn data(self) -> &'static [u8] {
        match self {
            Self::Cuda => include_bytes!("../data/values/cuda.csv"),
            Self::Errno => include_bytes!("../data/values/errno.csv"),
            Self::VerbsStatus => include_bytes!("../data/values/verbs_status.csv"),
            Self::VerbsEvent => include_bytes!("../data/values/verbs_event.csv"),
            Self::Efa => include_bytes!("../data/values/efa.csv"),
            Self::Libfabric => include_bytes!("../data/values/libfabric.csv"),
            Self::NcclResult => include_bytes!("../data/values/nccl_result.csv"),
            Self::Nvml => include_bytes!("../data/values/nvml.csv"),
            Self::Xid => include_bytes!("../data/values/xid.csv"),
            Self::Exit => include_bytes!("../data/values/exit.csv"),
            Self::Signal => include_bytes!("../data/values/signal.csv"),
        }
    }
}

/// Where the reason of a failure lies, as seen from the process that printed the code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Side {
    /// In this process or on this host.
    Local,
    /// In the process or on the host at the other end.
    Remote,
    /// Between the two.
    Path,
    /// In an earlier failure, which this code only follows.
    Consequence,
}

/// A code and its meaning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Value {
    /// The table it belongs to.
    pub table: Table,
    /// Its number.
    pub code: i64,
    /// Its name in the source, such as `cudaErrorUnknown`.
    pub name: Box<str>,
    /// Other names, such as `CUDA_ERROR_UNKNOWN`.
    pub also: Vec<Box<str>>,
    /// The text that programs print for it; empty if there is none.
    pub text: Box<str>,
    /// Other texts, of other releases.
    pub texts: Vec<Box<str>>,
    /// What it means, in a sentence.
    pub meaning: Box<str>,
    /// Where the reason lies.
    pub side: Side,
    /// What to do.
    pub remedy: Box<str>,
    /// Where number and text are from.
    pub source: Box<str>,
}

impl Value {
    /// All names.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        std::iter::once(&*self.name).chain(self.also.iter().map(|it| &**it))
    }

    /// All printed texts.
    pub fn printed(&self) -> impl Iterator<Item = &str> {
        std::iter::once(&*self.text).chain(self.texts.iter().map(|it| &**it)).filter(|it| !it.is_empty())
    }

    /// Whether it is a success or a normal state rather than a failure.
    pub fn is_harmless(&self) -> bool {
        &*self.remedy == "Nothing to do."
    }
}

/// The value with this number.
pub fn find(table: Table, code: i64) -> Option<&'static Value> {
    let values = all();
    let at = values.by_code.get(&(table, code))?;
    values.list.get(*at)
}

/// The value with this printed text or name, whatever its case. A number is not needed.
pub fn find_text(table: Table, text: &str) -> Option<&'static Value> {
    of_text(&normalised(text)).find(|it| it.table == table)
}

/// The values of all tables with this name or printed text: `ncclInternalError`, `Xid 79`, `exit code 137`, `out of memory`.
pub fn find_name(name: &str) -> Vec<&'static Value> {
    let key = normalised(name);
    let mut found: Vec<&'static Value> = of_text(&key).collect();
    if found.is_empty() {
        found.extend(numbered(&key));
    }
    found
}

/// The value of this table that a message carries, by its number after one of the words that introduce it, or by its printed text.
///
/// ```
/// use messages::values::{Table, in_text};
/// assert_eq!(in_text(Table::Cuda, "Cuda failure 700 'an illegal memory access was encountered'").map(|it| it.code), Some(700));
/// assert_eq!(in_text(Table::VerbsStatus, "with status=IBV_WC_REM_ACCESS_ERR(10) opcode=").map(|it| it.code), Some(10));
/// ```
pub fn in_text(table: Table, text: &str) -> Option<&'static Value> {
    let text = text.to_ascii_lowercase();
    let words: &[&str] = match table {
        Table::Cuda => &["cuda failure ", "cuda error ", "cuda handle : ", "(cudaerror) "],
        Table::VerbsStatus => &["status=", "with error ", "completion error ", "failed status "],
        Table::Errno => &["errno ", "rc: -", "rc: ", "err: "],
        Table::Efa => &["prov_errno: ", "prov_err: ", "error: ", "efa internal error: (", "proverr: "],
        Table::NcclResult => &[" -> ", "res=", "error ", "failed with "],
        Table::Xid => &["): ", "xid "],
        Table::VerbsEvent | Table::Libfabric | Table::Nvml | Table::Exit | Table::Signal => &[],
    };
    let numbered = words.iter().find_map(|word| {
        let mut places = text.match_indices(word).map(|(at, _)| at + word.len());
        places.find_map(|at| find(table, code_at(text.get(at..)?)?))
    });
    let names_it = |it: &&'static Value| it.printed().chain(it.names()).any(|it| stands_in(&text, it));
    let printed = || of_table(table).filter(names_it).max_by_key(|it| longest_in(it, &text));
    match table {
        // The text says more than a number that another program may have put before it.
        Table::Errno | Table::Efa => printed().or(numbered),
        _ => numbered.or_else(printed),
    }
}

/// The number at the beginning of a text, or in the parentheses after a name: `10, opcode`, `IBV_WC_REM_ACCESS_ERR(10)`.
fn code_at(text: &str) -> Option<i64> {
    let text =
        text.trim_start_matches(|it: char| it.is_ascii_alphabetic() || it == '_').trim_start_matches('(');
    let end = text.find(|it: char| !it.is_ascii_digit()).unwrap_or(text.len());
    text.get(..end)?.parse().ok()
}

/// Whether a text of some length stands in a message; short ones such as `timeout` are too common to count.
fn stands_in(text: &str, part: &str) -> bool {
    part.len() > 7 && text.contains(&part.to_ascii_lowercase())
}

fn longest_in(value: &Value, text: &str) -> usize {
    value.printed().chain(value.names()).filter(|it| stands_in(text, it)).map(str::len).max().unwrap_or(0)
}

/// The values of one table, by their numbers.
pub fn of_table(table: Table) -> impl Iterator<Item = &'static Value> {
    all().list.iter().filter(move |it| it.table == table)
}

fn of_text(key: &str) -> impl Iterator<Item = &'static Value> {
    let values = all();
    let positions = values.by_text.get(key).map_or(&[][..], Vec::as_slice);
    positions.iter().filter_map(|at| values.list.get(*at))
}

/// A table named in words and a number: `cuda failure 700`, `signal 9`, `status 12`, `exitcode: -9`.
fn numbered(key: &str) -> Option<&'static Value> {
    const WORDS: &[(&str, Table)] = &[
        ("cuda failure", Table::Cuda),
        ("cuda error", Table::Cuda),
        ("cudaerror", Table::Cuda),
        ("xid", Table::Xid),
        ("errno", Table::Errno),
        ("exit code", Table::Exit),
        ("exitcode", Table::Exit),
        ("exit status", Table::Exit),
        ("signal", Table::Signal),
        ("ibv_wc_status", Table::VerbsStatus),
        ("completion status", Table::VerbsStatus),
        ("status", Table::VerbsStatus),
        ("ncclresult", Table::NcclResult),
        ("nccl error", Table::NcclResult),
    ];
    let number_at = key.rfind(|it: char| !it.is_ascii_digit()).map_or(0, |at| at + 1);
    let (words, digits) = key.split_at_checked(number_at)?;
    let code: i64 = digits.parse().ok()?;
    let negative = words.ends_with('-');
    let words = words.trim_end_matches([' ', ':', '=', '-', '(']);
    let table = WORDS.iter().find(|it| it.0 == words)?.1;
    match table {
        // A negative exit code is a signal.
        Table::Exit if negative => find(Table::Signal, code),
        Table::Exit => find(Table::Exit, code),
        _ => find(table, code),
    }
}

/// Lower case, single blanks, without the quotes and stops around it.
fn normalised(text: &str) -> String {
    let text = text.trim().trim_matches(['\'', '"', '`', '.', ',', ';']);
    text.split_whitespace().map(str::to_ascii_lowercase).collect::<Vec<_>>().join(" ")
}

#[derive(Debug, Default)]
struct Values {
    list: Vec<Value>,
    by_code: HashMap<(Table, i64), usize>,
    by_text: HashMap<String, Vec<usize>>,
}

fn all() -> &'static Values {
    static VALUES: OnceLock<Values> = OnceLock::new();
    VALUES.get_or_init(|| {
        let mut values = Values::default();
        for table in Table::ALL {
            // A test proves that every table can be read.
            for value in read(table).unwrap_or_default() {
                let at = values.list.len();
                values.by_code.entry((table, value.code)).or_insert(at);
                for text in value.names().chain(value.printed()) {
                    let positions = values.by_text.entry(normalised(text)).or_default();
                    if !positions.contains(&at) {
                        positions.push(at);
                    }
                }
                values.list.push(value);
            }
        }
        values
    })
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    code: i64,
    name: Box<str>,
    also: Box<str>,
    text: Box<str>,
    texts: Box<str>,
    meaning: Box<str>,
    side: Side,
    remedy: Box<str>,
    source: Box<str>,
}

fn read(table: Table) -> csv::Result<Vec<Value>> {
    let list = |text: &str| text.split('|').filter(|it| !it.is_empty()).map(Into::into).collect();
    csv::Reader::from_reader(table.data())
        .deserialize()
        .map(|row| {
            let Row { code, name, also, text, texts, meaning, side, remedy, source } = row?;
            let (also, texts) = (list(&also), list(&texts));
            Ok(Value { table, code, name, also, text, texts, meaning, side, remedy, source })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::{Side, Table, find, find_name, find_text, in_text, of_table, read};

    #[test]
    fn every_table_can_be_read_and_is_complete() {
        let least = |table| match table {
            Table::Cuda => 95,
            Table::Errno => 60,
            Table::VerbsStatus => 24,
            Table::VerbsEvent => 20,
            Table::Efa => 48,
            Table::Libfabric => 16,
            Table::NcclResult => 9,
            Table::Nvml => 25,
            Table::Xid => 40,
            Table::Exit | Table::Signal => 20,
        };
        for table in Table::ALL {
            let values = read(table).unwrap();
            assert!(values.len() >= least(table), "{table:?}: {}", values.len());
            for pair in values.windows(2) {
                assert!(pair[0].code < pair[1].code, "{table:?} {}", pair[1].code);
            }
        }
    }

    #[test]
    fn every_value_is_found_by_number_name_and_text() {
        for value in Table::ALL.into_iter().flat_map(of_table) {
            assert_eq!(find(value.table, value.code), Some(value));
            assert!(value.meaning.ends_with('.') && value.remedy.ends_with('.'), "{}", value.name);
            for name in value.names() {
                assert_eq!(find_text(value.table, name), Some(value), "{name}");
                assert!(find_name(&name.to_uppercase()).contains(&value), "{name}");
            }
            for text in value.printed() {
                assert!(find_name(text).contains(&value), "{text}");
            }
        }
    }

    #[test]
    fn names_as_people_give_them() {
        let one = |name: &str| {
            let found = find_name(name);
            assert_eq!(found.len(), 1, "{name}: {found:?}");
            (found[0].table, found[0].code)
        };
        assert_eq!(one("ncclInternalError"), (Table::NcclResult, 3));
        assert_eq!(one("IBV_WC_REM_ACCESS_ERR"), (Table::VerbsStatus, 10));
        assert_eq!(one("cudaErrorUnknown"), (Table::Cuda, 999));
        assert_eq!(one("CUDA_ERROR_ILLEGAL_ADDRESS"), (Table::Cuda, 700));
        assert_eq!(one("Xid 79"), (Table::Xid, 79));
        assert_eq!(one("ECONNREFUSED"), (Table::Errno, 111));
        assert_eq!(one("SIGBUS"), (Table::Signal, 7));
        assert_eq!(one("exit code 137"), (Table::Exit, 137));
        assert_eq!(one("exitcode: -9"), (Table::Signal, 9));
        assert_eq!(one("'an illegal memory access was encountered'"), (Table::Cuda, 700));
        assert_eq!(one("Cuda failure 217"), (Table::Cuda, 217));
        assert_eq!(one("local access violation work queue error"), (Table::VerbsEvent, 3));
        assert_eq!(one("unhandled system error"), (Table::NcclResult, 2));
        // Four tables print this text.
        assert_eq!(find_name("invalid argument").len(), 4);
        assert!(find_name("no such name").is_empty());
        assert!(find_name("").is_empty());
    }

    #[test]
    fn values_are_found_in_messages() {
        let code = |table, text| in_text(table, text).map(|it| it.code);
        for (text, want) in [
            ("Cuda failure 'out of memory'", 2),
            ("Cuda failure 217 'peer access is not supported between these two devices'", 217),
            (
                "failed to open CUDA IPC handle : 64 peer access is not supported between these two devices",
                217,
            ),
            ("CUDA error: device-side assert triggered", 710),
        ] {
            assert_eq!(code(Table::Cuda, text), Some(want), "{text}");
        }
        for (text, want) in [
            (
                "NET/IB : Got completion from peer 10.0.0.1<1> with error 9, opcode 1, len 2, vendor err 137",
                9,
            ),
            ("NET/IB : Got completion with status=5 opcode=0 len=0 vendor err 249", 5),
            ("Got completion from peer a with status=IBV_WC_RNR_RETRY_EXC_ERR(13) opcode=IBV_WC_SEND(0)", 13),
            ("NET/IB Got completion error 12", 12),
        ] {
            assert_eq!(code(Table::VerbsStatus, text), Some(want), "{text}");
        }
        assert_eq!(
            code(
                Table::VerbsEvent,
                "mlx5_0:1 async fatal event on QP: local access violation work queue error"
            ),
            Some(3)
        );
        assert_eq!(code(Table::Errno, "Call to bind failed: Address already in use"), Some(98));
        assert_eq!(code(Table::Errno, "UDS: Binding to socket x failed : 98"), None);
        assert_eq!(
            code(
                Table::Efa,
                "completed with error. RC: 113. Error: 15 (Unreachable remote (never received a response))."
            ),
            Some(15)
        );
        assert_eq!(
            code(
                Table::Efa,
                "RC: 5. Error: 9 (Bad queue pair (QP) number (QP does not exist or is in error state))"
            ),
            Some(9)
        );
        assert_eq!(code(Table::Nvml, "nvmlInit_v2() failed: Driver/library version mismatch"), Some(18));
        assert_eq!(
            code(
                Table::NcclResult,
                "[Service thread] Error encountered progressing operation=Connect, res=6, closing connection"
            ),
            Some(6)
        );
        assert_eq!(code(Table::NcclResult, "init.cc:1423 -> 5 [Async thread]"), Some(5));
        assert_eq!(code(Table::Cuda, "nothing"), None);
    }

    #[test]
    fn sides_tell_the_reporter_from_the_culprit() {
        let side = |table, code| find(table, code).unwrap().side;
        assert_eq!(side(Table::VerbsStatus, 5), Side::Consequence);
        assert_eq!(side(Table::VerbsStatus, 10), Side::Remote);
        assert_eq!(side(Table::Efa, 9), Side::Remote);
        assert_eq!(side(Table::Efa, 15), Side::Path);
        assert_eq!(side(Table::Cuda, 700), Side::Local);
    }
}
