//! A program that answers and ends, within a limit.

use std::io::{Read, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::Error;

/// More than any answer that is expected.
const MOST: u64 = 64 << 20;

pub(crate) struct Answer {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// Runs it to its end. One that takes longer is killed, which is an error.
pub(crate) fn output(mut command: Command, input: &str, limit: Duration) -> Result<Answer, Error> {
    let name = command.get_program().to_string_lossy().into_owned();
    let failed = |error: &dyn std::fmt::Display| Error::start(&name, error);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let mut child = command.spawn().map_err(|error| failed(&error))?;
    let (mut stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let input = input.to_owned();
    // It ends when the program has read all or has ended.
    std::thread::spawn(move || stdin.as_mut().map(|it| it.write_all(input.as_bytes())));
    let (stdout, stderr) = (reader(stdout), reader(stderr));
    let until = Instant::now() + limit;
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if Instant::now() < until => std::thread::sleep(Duration::from_millis(5)),
            _ => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(failed(&format!("no answer in {} s", limit.as_secs())));
            }
        }
    };
    let text = |it: std::thread::JoinHandle<Vec<u8>>| {
        String::from_utf8_lossy(&it.join().unwrap_or_default()).into_owned()
    };
    Ok(Answer { code: status.code(), stdout: text(stdout), stderr: text(stderr) })
}

fn reader(pipe: Option<impl Read + Send + 'static>) -> std::thread::JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(pipe) = pipe {
            let _ = pipe.take(MOST).read_to_end(&mut bytes);
        }
        bytes
    })
}
