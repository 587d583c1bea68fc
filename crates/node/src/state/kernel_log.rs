//! The kernel's messages, from `/dev/kmsg`.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use evidence::node::KernelLog;

/// The kernel's ring is a few MiB at most.
const MOST: usize = 64 << 20;

/// Reads all messages that are still there. The error says why they cannot be read.
pub(super) fn read(path: &Path) -> Result<KernelLog, String> {
    let flags = i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).unwrap_or(0);
    let problem = |error: &std::io::Error| match error.kind() {
        ErrorKind::NotFound => "/dev/kmsg is not there".to_owned(),
        ErrorKind::PermissionDenied => "/dev/kmsg may not be read".to_owned(),
        _ => format!("/dev/kmsg: {error}"),
    };
    let mut file = OpenOptions::new().read(true).custom_flags(flags).open(path).map_err(|it| problem(&it))?;
    let mut log = KernelLog::default();
    // The device gives one record at a time, and refuses a buffer that is smaller than it. A recording is a plain file.
    let mut buffer = vec![0; 64 << 10];
    let mut rest = Vec::new();
    let mut total = 0usize;
    loop {
        let read = match file.read(&mut buffer) {
            Ok(0) => break,
            Ok(read) => read,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            // Records were overwritten while we read: the next call goes on with the oldest one.
            Err(error) if error.raw_os_error() == Some(rustix::io::Errno::PIPE.raw_os_error()) => continue,
            Err(error) if total == 0 => return Err(problem(&error)),
            Err(_) => break,
        };
        total = total.saturating_add(read);
        rest.extend_from_slice(buffer.get(..read).unwrap_or_default());
        let whole = rest.iter().rposition(|it| *it == b'\n').map_or(0, |it| it + 1);
        for line in rest.drain(..whole).collect::<Vec<u8>>().split(|it| *it == b'\n') {
            // Lines that begin with a blank belong to the record before.
            if line.first().is_some_and(|it| *it != b' ') {
                log.add_record(&String::from_utf8_lossy(line));
            }
        }
        if total > MOST || rest.len() > MOST {
            break;
        }
    }
    Ok(log)
}
