//! Writes every output file of plumb.
//!
//! A file is replaced as a whole: the output is built in memory, written to a temporary file in the same folder, and that file is
//! renamed. Anything that is not a regular file (`/dev/stdout`, a FIFO) is written to directly.

use std::borrow::Cow;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, IsTerminal as _, Write};
use std::path::{Path, PathBuf};

use crate::args::Format;
use crate::complain;

/// Whether there are as many outputs as formats need.
pub(crate) fn formats_fit(formats: &[Format], outputs: &[PathBuf]) -> bool {
    let n = formats.len().max(1);
    if outputs.len() > n {
        complain("error: more --output than --format options");
    } else if n > outputs.len() + 1 {
        complain("error: only one --format can go to standard output: give each of the others an --output");
    } else {
        return true;
    }
    false
}

/// Writes every format to its output; `false` if formats and outputs do not match.
pub(crate) fn write_all(
    formats: &[Format],
    outputs: &[PathBuf],
    out: &mut impl Write,
    mut write: impl FnMut(Format, bool, &mut dyn Write) -> io::Result<()>,
) -> io::Result<bool> {
    if !formats_fit(formats, outputs) {
        return Ok(false);
    }
    let formats = if formats.is_empty() { &[Format::Text] } else { formats };
    for (i, format) in formats.iter().enumerate() {
        match outputs.get(i) {
            Some(path) => write_file(path, |out| write(*format, true, out))?,
            None => write(*format, false, &mut *out)?,
        }
    }
    Ok(true)
}

/// Creates or replaces a file. On failure the old file is unchanged, and the error names it.
pub(crate) fn write_file(
    path: &Path,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> io::Result<()> {
    let mut bytes = Vec::new();
    write(&mut bytes).and_then(|()| replace(path, &bytes)).map_err(|error| named(path, &error))
}

/// Whether [`write_file`] can write there, before what takes long; the error names the file.
pub(crate) fn can_write(path: &Path) -> io::Result<()> {
    let possible = match fs::metadata(path) {
        _ if is_stream(path) => Ok(()),
        Ok(it) if it.is_dir() => Err(io::ErrorKind::IsADirectory.into()),
        Ok(it) if !it.is_file() => Ok(()),
        Ok(_) => OpenOptions::new().write(true).open(path).map(drop),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            link_target(path).and_then(|it| temporary(&it, b"")).map(drop)
        }
        Err(error) => Err(error),
    };
    possible.map_err(|error| named(path, &error))
}

/// Creates a new file with this name or, like nccl-tests, with a number appended. Returns its name.
#[cfg(target_os = "linux")]
pub(crate) fn write_new(
    path: &Path,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> io::Result<PathBuf> {
    let mut bytes = Vec::new();
    write(&mut bytes).map_err(|error| named(path, &error))?;
    if fs::metadata(path).is_ok_and(|it| !it.is_file()) {
        return directly(path, &bytes).map(|()| path.to_owned()).map_err(|error| named(path, &error));
    }
    let mut temporary = temporary(path, &bytes).map_err(|error| named(path, &error))?;
    let numbered = (0..10_000).map(|it| PathBuf::from(format!("{}.{it}", path.display())));
    for path in std::iter::once(path.to_owned()).chain(numbered) {
        temporary = match temporary.persist_noclobber(&path) {
            Ok(_) => return Ok(path),
            Err(failed) if failed.error.kind() == io::ErrorKind::AlreadyExists => failed.file,
            Err(failed) => return Err(named(&path, &failed.error)),
        };
    }
    let error = format!("{} and its numbered names exist", path.display());
    Err(io::Error::new(io::ErrorKind::AlreadyExists, error))
}

fn named(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    if is_stream(path) {
        return directly(path, bytes);
    }
    let old = match fs::metadata(path) {
        Ok(it) if !it.is_file() => return directly(path, bytes),
        Ok(it) => Some(it),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(error),
    };
    let Some(old) = old else {
        let target = link_target(path)?;
        return temporary(&target, bytes)?.persist(&target).map(drop).map_err(|it| it.error);
    };
    // A read-only file is not replaced either.
    OpenOptions::new().write(true).open(path)?;
    let target = fs::canonicalize(path)?;
    let replaced = temporary(&target, bytes).and_then(|it| {
        keep_owner_and_mode(it.as_file(), &old)?;
        it.persist(&target).map(drop).map_err(|it| it.error)
    });
    match replaced {
        // A writable file in a read-only folder, or a mount point, cannot be replaced, only written to.
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::PermissionDenied
                    | io::ErrorKind::ReadOnlyFilesystem
                    | io::ErrorKind::ResourceBusy
            ) =>
        {
            directly(path, bytes)
        }
        other => other,
    }
}

fn directly(path: &Path, bytes: &[u8]) -> io::Result<()> {
    File::create(path)?.write_all(bytes)
}

/// Names of open file descriptors: the file behind them must not be replaced, even if it is a regular file.
fn is_stream(path: &Path) -> bool {
    path == Path::new("/dev/stdout")
        || path == Path::new("/dev/stderr")
        || path.starts_with("/dev/fd")
        || path.starts_with("/proc")
}

/// The target of a dangling link; the path itself if it is not a link.
fn link_target(path: &Path) -> io::Result<PathBuf> {
    let mut target = path.to_owned();
    // The limit of Linux.
    for _ in 0..40 {
        let Ok(next) = fs::read_link(&target) else { return Ok(target) };
        target = target.parent().unwrap_or(Path::new("")).join(next);
    }
    Err(io::Error::other("too many links"))
}

/// A temporary file in the folder of `path` with these bytes, synced to disk. It is removed unless it is persisted.
fn temporary(path: &Path, bytes: &[u8]) -> io::Result<tempfile::NamedTempFile> {
    let folder = path.parent().filter(|it| !it.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // The error of the temporary file has a random name, so use this one.
    fs::metadata(folder)?;
    let mut builder = tempfile::Builder::new();
    builder.prefix(".plumb-");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        // The mode of any new file, reduced by the umask.
        builder.permissions(fs::Permissions::from_mode(0o666));
    }
    let mut file = builder.tempfile_in(folder).map_err(|it| io::Error::from(it.kind()))?;
    file.write_all(bytes)?;
    file.as_file().sync_all()?;
    Ok(file)
}

#[cfg(unix)]
fn keep_owner_and_mode(file: &File, old: &Metadata) -> io::Result<()> {
    use std::os::unix::fs::{MetadataExt as _, fchown};
    let new = file.metadata()?;
    if (new.uid(), new.gid()) != (old.uid(), old.gid()) {
        fchown(file, Some(old.uid()), Some(old.gid()))?;
    }
    file.set_permissions(old.permissions())
}

#[cfg(not(unix))]
fn keep_owner_and_mode(file: &File, old: &Metadata) -> io::Result<()> {
    file.set_permissions(old.permissions())
}

/// Whether no output is also an input, under any name; otherwise writes an error. `hide` leaves out the names.
pub(crate) fn spares<'a>(
    outputs: impl IntoIterator<Item = &'a PathBuf>,
    inputs: &[PathBuf],
    hide: bool,
) -> bool {
    for output in outputs {
        let Some(identity) = identity(output) else { continue };
        let input = inputs.iter().find(|it| {
            // Standard input may also be a file.
            let path = if it.as_os_str() == "-" { Path::new("/dev/stdin") } else { it };
            self::identity(path).as_ref() == Some(&identity)
        });
        if let Some(input) = input {
            let names = if hide {
                "the output is also an input".to_owned()
            } else if input == output {
                format!("{} is both input and output", output.display())
            } else {
                format!("the output {} is the input {}", output.display(), crate::input::name(input))
            };
            complain(&format!(
                "error: {names}: plumb does not overwrite its input\nhint: choose another file for the output"
            ));
            return false;
        }
    }
    true
}

/// The identity of a regular file under all its names.
#[cfg(unix)]
fn identity(path: &Path) -> Option<(u64, u64)> {
    use std::os::unix::fs::MetadataExt as _;
    fs::metadata(path).ok().filter(Metadata::is_file).map(|it| (it.dev(), it.ino()))
}

#[cfg(not(unix))]
fn identity(path: &Path) -> Option<PathBuf> {
    fs::canonicalize(path).ok().filter(|it| it.is_file())
}

/// Writes input text to standard output; on a terminal, without control sequences.
pub(crate) fn shown(text: &str) -> Cow<'_, str> {
    if io::stdout().is_terminal() { Cow::Owned(clean_lines(text)) } else { Cow::Borrowed(text) }
}

/// Removes control characters except line ends and tabs.
pub(crate) fn clean_lines(text: &str) -> String {
    let clean = |it: &str| it.split('\t').map(report::clean).collect::<Vec<_>>().join("\t");
    text.split('\n').map(clean).collect::<Vec<_>>().join("\n")
}

#[cfg(all(test, unix))]
mod tests {
    use std::fs;
    use std::io;
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    use std::path::{Path, PathBuf};

    use super::{clean_lines, spares, write_file, write_new};

    fn put(path: &Path, text: &str) -> io::Result<()> {
        write_file(path, |out| out.write_all(text.as_bytes()))
    }

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).expect("a folder");
        let name =
            |it: io::Result<fs::DirEntry>| it.expect("an entry").file_name().to_string_lossy().into_owned();
        let mut names: Vec<String> = entries.map(name).collect();
        names.sort();
        names
    }

    #[test]
    fn a_file_is_replaced_and_keeps_its_mode() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        fs::write(&path, "old").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        put(&path, "new").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
        assert_eq!(names(folder.path()), ["a"]);
    }

    #[test]
    fn a_link_stays_a_link() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("deep")).unwrap();
        for (target, link) in [("deep/a", "to-a"), ("deep/new", "to-new")] {
            if link == "to-a" {
                fs::write(folder.path().join(target), "old").unwrap();
            }
            symlink(target, folder.path().join(link)).unwrap();
            put(&folder.path().join(link), "new").unwrap();
            assert!(folder.path().join(link).symlink_metadata().unwrap().is_symlink());
            assert_eq!(fs::read_to_string(folder.path().join(target)).unwrap(), "new");
        }
        assert_eq!(names(&folder.path().join("deep")), ["a", "new"]);
    }

    #[test]
    fn a_failure_leaves_the_old_file_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        fs::write(&path, "old").unwrap();
        let error = write_file(&path, |out| {
            out.write_all(b"half")?;
            Err(io::Error::other("no more"))
        });
        assert_eq!(error.unwrap_err().to_string(), format!("{}: no more", path.display()));
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        assert_eq!(names(folder.path()), ["a"]);
        let error = put(&folder.path().join("none/a"), "x").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        assert!(!error.to_string().contains(".plumb-"), "{error}");
    }

    #[test]
    fn what_is_not_a_regular_file_is_written_to() {
        put(Path::new("/dev/null"), "x").unwrap();
        assert!(!fs::metadata("/dev/null").unwrap().is_file());
        assert_eq!(write_new(Path::new("/dev/null"), |_| Ok(())).unwrap(), PathBuf::from("/dev/null"));
    }

    #[test]
    fn a_new_file_takes_the_next_number() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        for want in ["a", "a.0", "a.1"] {
            assert_eq!(write_new(&path, |out| out.write_all(b"x")).unwrap(), folder.path().join(want));
        }
        assert_eq!(names(folder.path()), ["a", "a.0", "a.1"]);
    }

    #[test]
    fn an_input_is_known_by_all_its_names() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("a"), "x").unwrap();
        fs::write(at("b"), "x").unwrap();
        symlink("a", at("link")).unwrap();
        fs::hard_link(at("a"), at("hard")).unwrap();
        for output in ["a", "./a", "link", "hard"] {
            assert!(!spares([&at(output)], &[at("b"), at("a")], false), "{output}");
        }
        for output in ["b", "none"] {
            assert!(spares([&at(output)], &[at("a")], false), "{output}");
        }
        assert!(spares([&PathBuf::from("/dev/null")], &[PathBuf::from("/dev/null")], false));
    }

    #[test]
    fn a_diff_on_a_terminal_commands_nothing() {
        assert_eq!(clean_lines("-a\u{1b}]0;x\u{7}\tb\n+c\u{9b}31m\n"), "-a]0;x\tb\n+c31m\n");
    }
}
