//! A report that plumb wrote as HTML, read again by the command that wrote it.

use std::fs::File;
use std::io::{self, BufRead as _, Read as _, Write};
use std::path::{Path, PathBuf};

use report::html::{BROWSER_PAGE, Kept, command_of, is_browser_page};

use crate::args::{FailOn, Format, PageFormat};
use crate::{CLEAN, FINDINGS, UNDECIDED, complain, doctor, input, output};

/// The largest page that is read.
const MOST: u64 = 1 << 30;

/// A page that was read.
#[derive(Debug)]
pub(crate) struct Page {
    kept: Kept,
    /// The whole file.
    text: String,
}

/// How a page is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    Text { verbose: bool },
    Json,
    Html,
}

impl Form {
    pub(crate) fn new(format: PageFormat, verbose: bool) -> Self {
        match format {
            PageFormat::Text => Self::Text { verbose },
            PageFormat::Json => Self::Json,
            PageFormat::Html => Self::Html,
        }
    }
}

/// The page, where it is the only input of `command`. The error says what is wrong with it, or which command reads it.
pub(crate) fn only(paths: &[PathBuf], command: &str) -> Option<Result<Page, String>> {
    let [path] = paths else { return None };
    let head = head(path)?;
    let name = input::name(path);
    if is_browser_page(&head) {
        let instead = if command == "doctor" { "not a log" } else { "not an input" };
        return Some(Err(format!("{name}: {BROWSER_PAGE}, {instead}")));
    }
    let wrote = command_of(&head)?;
    let named = |reason: String| format!("{name}: {reason}");
    if wrote != command {
        let file = if path.as_os_str() == "-" { "-" } else { &name };
        return Some(Err(named(format!("is a report of plumb {wrote}: `plumb {wrote} {file}` shows it"))));
    }
    let mut text = String::new();
    let read = input::open_whole(path).and_then(|it| it.take(MOST).read_to_string(&mut text));
    let page = read
        .map_err(|error| error.to_string())
        .and_then(|_| Kept::read(&text).map_err(|error| error.to_string()));
    Some(page.map(|kept| Page { kept, text }).map_err(named))
}

/// The page, where every file that was given or found is a page. The error says what several are, and which command takes them.
pub(crate) fn all(files: &[PathBuf], command: &str) -> Option<Result<Page, String>> {
    let mut commands = Vec::new();
    for path in files {
        commands.push(command_of(&head(path)?)?);
    }
    let [first, second, ..] = files else { return only(files, command) };
    let of_one = commands.iter().all(|it| Some(it) == commands.first());
    let what = if of_one { commands.first().cloned().unwrap_or_default() } else { listed(&commands) };
    let (first, second) = (input::name(first), input::name(second));
    let shows = commands.first().map_or(command, |it| it);
    let run = |it: &String| ["bench", "doctor", "predict", "validate"].contains(&it.as_str());
    let compares = if commands.iter().all(run) {
        let more = if files.len() > 2 { " ..." } else { "" };
        format!(", `plumb compare {first} {second}{more}` compares them")
    } else {
        String::new()
    };
    Some(Err(format!(
        "the {} files are reports of plumb {what}, each a whole answer, not logs: `plumb {shows} {first}` shows one{compares}",
        files.len()
    )))
}

/// What is wrong with a report that is given where logs are read; none where there is none among the paths.
pub(crate) fn among_logs(paths: &[PathBuf]) -> Option<String> {
    paths.iter().find_map(|path| {
        let (head, name) = (head(path)?, input::name(path));
        if is_browser_page(&head) {
            return Some(format!("{name}: {BROWSER_PAGE}, not a log"));
        }
        let wrote = command_of(&head)?;
        Some(format!("{name}: is a report of plumb {wrote}, not a log: `plumb {wrote} {name}` shows it"))
    })
}

/// `bench and doctor`
fn listed(commands: &[String]) -> String {
    let mut all: Vec<&str> = commands.iter().map(String::as_str).collect();
    all.sort_unstable();
    all.dedup();
    all.join(" and ")
}

/// The JSON that a page of `command` holds; a text that is not a page as it is. The error names the file.
pub(crate) fn json_of(name: &str, text: String, command: &str) -> Result<String, String> {
    let Some(wrote) = command_of(text.as_bytes()) else { return Ok(text) };
    if wrote != command {
        return Err(format!("{name}: is a report of plumb {wrote}: `plumb {wrote} {name}` shows it"));
    }
    Kept::read(&text).map(|it| it.json).map_err(|error| format!("{name}: {error}"))
}

/// The beginning of an input. What is read of standard input stays in its buffer.
fn head(path: &Path) -> Option<Vec<u8>> {
    if path.as_os_str() == "-" {
        return io::stdin().lock().fill_buf().ok().map(<[u8]>::to_vec);
    }
    // A pipe would lose what is read here.
    if !std::fs::metadata(path).ok()?.is_file() {
        return None;
    }
    let mut head = Vec::new();
    if input::is_compressed(path) {
        input::open_whole(path).ok()?.take(1024).read_to_end(&mut head).ok()?;
    } else {
        File::open(path).ok()?.take(1024).read_to_end(&mut head).ok()?;
    }
    Some(head)
}

/// Shows a page, or says why not.
pub(crate) fn show(
    page: Result<Page, String>,
    form: Form,
    fail_on: FailOn,
    out: &mut impl Write,
) -> io::Result<u8> {
    match page {
        Ok(page) => {
            page.write(form, out)?;
            Ok(page.code(fail_on))
        }
        Err(reason) => {
            complain(&format!("error: {reason}"));
            Ok(UNDECIDED)
        }
    }
}

/// The same in several formats with their outputs.
pub(crate) fn show_all(
    page: Result<Page, String>,
    formats: &[Format],
    outputs: &[PathBuf],
    verbose: bool,
    fail_on: FailOn,
    out: &mut impl Write,
) -> io::Result<u8> {
    let page = match page {
        Ok(page) => page,
        Err(reason) => {
            complain(&format!("error: {reason}"));
            return Ok(UNDECIDED);
        }
    };
    if formats.iter().any(|it| matches!(it, Format::Sarif | Format::Junit)) {
        complain(
            "error: a report is shown again as text, json or html: other formats are written from the input itself",
        );
        return Ok(UNDECIDED);
    }
    let written = output::write_all(formats, outputs, out, |format, _, mut out| {
        let form = match format {
            Format::Json => Form::Json,
            Format::Html => Form::Html,
            Format::Text | Format::Sarif | Format::Junit => Form::Text { verbose },
        };
        page.write(form, &mut out)
    })?;
    Ok(if written { page.code(fail_on) } else { UNDECIDED })
}

impl Page {
    fn write(&self, form: Form, out: &mut impl Write) -> io::Result<()> {
        let text = match form {
            Form::Text { verbose } => self.kept.text(doctor::width(), verbose),
            Form::Json => &self.kept.json,
            Form::Html => &self.text,
        };
        out.write_all(text.as_bytes())
    }

    /// The exit code of the answer.
    fn code(&self, fail_on: FailOn) -> u8 {
        let worst = self.kept.worst.as_deref();
        let reached = |least: rules::Severity| {
            use rules::Severity::{Error, Info, Warning};
            [Info, Warning, Error].iter().any(|it| *it >= least && worst == Some(it.name()))
        };
        if fail_on.severity().is_some_and(reached) {
            FINDINGS
        } else if self.kept.undecided {
            UNDECIDED
        } else {
            CLEAN
        }
    }
}
