//! The results folder of a validation: a journal to which every measurement is added as it ends.
//!
//! `journal.jsonl` has the plan in its first line and one finding per line after it. Each line is written with one call and flushed to
//! the disk before the next launch, so that whatever ends plumb loses nothing that had ended before. A last line without its end
//! is what a kill leaves: it is not read, and overwritten by whoever continues.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use ::validate::live::{Entry, Line, Plan, Run, SCHEMA};

const JOURNAL: &str = "journal.jsonl";
/// The longest journal that is read: a thousand machines and hundreds of rounds are less than a tenth of it.
const LONGEST: u64 = 1 << 30;

/// How long the lock of a plumb that was killed may outlast it: a program that it was just starting has the file open until it runs.
const RELEASED: Duration = Duration::from_secs(5);

/// A results folder that is being written.
pub(crate) struct Journal {
    path: PathBuf,
    file: File,
    started: Instant,
    before: Duration,
    written: io::Result<()>,
}

/// Whether this is a results folder, or the journal of one.
pub(crate) fn is_journal(path: &Path) -> bool {
    path.is_dir() && path.join(JOURNAL).is_file() || path.file_name().is_some_and(|it| it == JOURNAL)
}

/// What a results folder says.
pub(crate) fn read(path: &Path) -> Result<Run, String> {
    let file = if path.is_dir() { path.join(JOURNAL) } else { path.to_owned() };
    let mut text = Vec::new();
    let read = File::open(&file).and_then(|it| it.take(LONGEST).read_to_end(&mut text));
    read.map_err(|error| format!("{}: {error}", file.display()))?;
    parse(&text).map(|it| it.0).map_err(|broken| broken.at(&file))
}

/// Why a journal cannot be read.
#[derive(Debug)]
struct Broken {
    /// From 1; none where it is about the whole file.
    line: Option<usize>,
    reason: String,
}

impl Broken {
    /// `results/journal.jsonl:7: expected value at column 3`.
    fn at(&self, file: &Path) -> String {
        let line = self.line.map(|it| format!(":{it}")).unwrap_or_default();
        format!("{}{line}: {}", file.display(), self.reason)
    }

    /// Each line is a document of its own: the line that the parser counts is always 1.
    fn line(number: usize, what: &str, error: &serde_json::Error) -> Self {
        let reason = format!("{what}{}", error.to_string().replace(" at line 1 column ", " at column "));
        Self { line: Some(number), reason }
    }
}

/// The run, and how many bytes of the journal are whole lines.
fn parse(text: &[u8]) -> Result<(Run, usize), Broken> {
    let whole = text.iter().rposition(|it| *it == b'\n').map_or(0, |it| it + 1);
    let mut lines = text[..whole].split(|it| *it == b'\n').enumerate();
    let (_, first) = lines.next().unwrap_or_default();
    if first.is_empty() {
        return Err(Broken {
            line: None,
            reason: "is empty: nothing was written before plumb ended".to_owned(),
        });
    }
    let plan: Plan = serde_json::from_slice(first)
        .map_err(|error| Broken::line(1, "not the journal of a validation: ", &error))?;
    if plan.schema != SCHEMA {
        let reason = format!("has the format {}, this plumb reads {SCHEMA}", plan.schema);
        return Err(Broken { line: None, reason });
    }
    let mut run = Run::new(plan);
    for (number, line) in lines.filter(|it| !it.1.is_empty()) {
        let line: Line =
            serde_json::from_slice(line).map_err(|error| Broken::line(number + 1, "", &error))?;
        run.take(line);
    }
    Ok((run, whole))
}

impl Journal {
    /// A new folder, which must not exist yet or be empty.
    pub(crate) fn create(path: &Path, plan: &Plan) -> Result<Self, String> {
        let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
        std::fs::create_dir_all(path).map_err(|error| failed(&error))?;
        let file = OpenOptions::new().write(true).create_new(true).open(path.join(JOURNAL));
        let file = match file {
            Ok(it) => it,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                return Err(format!(
                    "{}: holds a validation already\nhint: --resume {} continues it; give --results another folder for a new one",
                    path.display(),
                    path.display()
                ));
            }
            Err(error) => return Err(failed(&error)),
        };
        let mut this = Self::locked(path, file)?;
        this.line(serde_json::to_vec(plan));
        this.result()?;
        Ok(this)
    }

    /// A folder that exists, and what it says.
    pub(crate) fn resume(path: &Path) -> Result<(Self, Run), String> {
        let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", path.join(JOURNAL).display());
        if path.is_dir() && !path.join(JOURNAL).exists() {
            return Err(format!(
                "{}: is not a results folder of plumb validate: it has no {JOURNAL}",
                path.display()
            ));
        }
        let file = OpenOptions::new().read(true).write(true).open(path.join(JOURNAL));
        let mut this = Self::locked(path, file.map_err(|error| failed(&error))?)?;
        let mut text = Vec::new();
        (&this.file).take(LONGEST).read_to_end(&mut text).map_err(|error| failed(&error))?;
        let (run, whole) = parse(&text).map_err(|broken| broken.at(&path.join(JOURNAL)))?;
        let end = this.file.set_len(whole as u64).and_then(|()| this.file.seek(SeekFrom::End(0)));
        end.map_err(|error| failed(&error))?;
        this.before = Duration::try_from_secs_f64(run.elapsed()).unwrap_or_default();
        Ok((this, run))
    }

    fn locked(path: &Path, file: File) -> Result<Self, String> {
        let until = Instant::now() + RELEASED;
        // Where the file system has no locks, nothing is locked.
        while let Err(TryLockError::WouldBlock) = file.try_lock() {
            if Instant::now() > until {
                return Err(format!("{}: another plumb writes to this folder", path.display()));
            }
            thread::sleep(Duration::from_millis(20));
        }
        let (started, before) = (Instant::now(), Duration::ZERO);
        Ok(Self { path: path.to_owned(), file, started, before, written: Ok(()) })
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Time of work so far.
    pub(crate) fn elapsed(&self) -> Duration {
        self.before + self.started.elapsed()
    }

    /// Writes an entry down, and gives it to the run.
    pub(crate) fn add(&mut self, run: &mut Run, entry: Entry) {
        let line = Line { elapsed_s: (self.elapsed().as_secs_f64() * 1e3).round() / 1e3, entry };
        self.line(serde_json::to_vec(&line));
        run.take(line);
    }

    fn line(&mut self, text: serde_json::Result<Vec<u8>>) {
        if self.written.is_err() {
            return;
        }
        self.written = text.map_err(io::Error::from).and_then(|mut text| {
            text.push(b'\n');
            self.file.write_all(&text)?;
            self.file.sync_data()
        });
    }

    /// Whether everything was written so far.
    pub(crate) fn result(&self) -> Result<(), String> {
        match &self.written {
            Ok(()) => Ok(()),
            Err(error) => Err(format!("{}: {error}", self.path.join(JOURNAL).display())),
        }
    }

    /// Another file of the folder.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }
}

/// `plumb-validate-20261116-124501`, in UTC.
pub(crate) fn default_name() -> PathBuf {
    let seconds = now();
    let (days, time) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = date(days);
    format!(
        "plumb-validate-{year:04}{month:02}{day:02}-{:02}{:02}{:02}",
        time / 3600,
        time / 60 % 60,
        time % 60
    )
    .into()
}

/// Seconds since 1970.
pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |it| it.as_secs())
}

/// The date of a day since 1970, in the Gregorian calendar: 400 years are 146,097 days, and a year that begins in March has its leap day
/// at the end.
fn date(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use ::validate::live::{Asked, Entry, Links, Plan, SCHEMA};

    use super::{Journal, date, parse, read};

    fn plan() -> Plan {
        Plan {
            schema: SCHEMA.to_owned(),
            version: "0".to_owned(),
            way: "ssh".to_owned(),
            hosts: vec!["a".to_owned()],
            budget_s: 60,
            timeout_s: 10,
            links: Links::Auto,
            least: None,
            seed: 1,
            asked: Asked::default(),
        }
    }

    #[test]
    fn dates() {
        assert_eq!([date(0), date(11_016), date(20_773)], [(1970, 1, 1), (2000, 2, 29), (2026, 11, 16)]);
    }

    #[test]
    fn half_a_line_is_not_read_and_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("results");
        let mut run = ::validate::live::Run::new(plan());
        let mut journal = Journal::create(&path, &plan()).unwrap();
        journal.add(&mut run, Entry::Started { at: 1 });
        drop(journal);
        let file = path.join("journal.jsonl");
        let whole = std::fs::read(&file).unwrap();
        let mut cut = whole.clone();
        cut.extend(b"{\"elapsed_s\":3.0,\"entry\":\"star");
        std::fs::write(&file, &cut).unwrap();
        assert_eq!(read(&path).unwrap().plan().hosts, ["a"]);
        let (mut journal, mut run) = Journal::resume(&path).unwrap();
        journal.add(&mut run, Entry::Started { at: 2 });
        let text = std::fs::read(&file).unwrap();
        assert!(text.starts_with(&whole) && parse(&text).is_ok(), "{}", String::from_utf8_lossy(&text));
        assert!(Journal::create(&path, &plan()).err().unwrap().contains("--resume"));
    }

    #[test]
    fn other_files_are_refused_in_words() {
        let says = |text: &[u8]| parse(text).err().unwrap().at(Path::new("r/journal.jsonl"));
        assert!(says(b"").contains("is empty"));
        assert!(says(b"{}\n").starts_with("r/journal.jsonl:1: not the journal"));
        let broken = serde_json::to_string(&plan()).unwrap() + "\n{\"elapsed_s\":1.0,\n";
        let broken = says(broken.as_bytes());
        assert!(broken.starts_with("r/journal.jsonl:2: ") && !broken.contains("line 1"), "{broken}");
        let other_folder = tempfile::tempdir().unwrap();
        let refused = Journal::resume(other_folder.path()).err().unwrap();
        assert!(refused.contains("is not a results folder of plumb validate"), "{refused}");
        let mut other = plan();
        other.schema = "plumb.validation/9".to_owned();
        let text = serde_json::to_string(&other).unwrap() + "\n";
        assert!(says(text.as_bytes()).contains("plumb.validation/9"));
    }
}
