//! A line on the terminal while a long input is read, or many layouts are searched.

use std::io::{self, IsTerminal as _, Read, Write as _};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Nothing is shown before this time.
const QUIET: Duration = Duration::from_secs(1);
const INTERVAL: Duration = Duration::from_millis(200);

/// How many bytes have been read from all inputs.
static READ: AtomicU64 = AtomicU64::new(0);

/// Shows how far the work is, after a second, if standard error is a terminal; removes it when dropped.
#[derive(Debug)]
pub(crate) struct Progress(Option<(Sender<()>, JoinHandle<()>)>);

impl Progress {
    /// How much has been read.
    pub(crate) fn show() -> Self {
        Self::of(|elapsed| text(READ.load(Ordering::Relaxed), elapsed))
    }

    /// What this says after so much time.
    pub(crate) fn of(text: impl Fn(Duration) -> String + Send + 'static) -> Self {
        if !io::stderr().is_terminal() {
            return Self(None);
        }
        let (end, ended) = channel();
        let show = move || {
            let start = Instant::now();
            let mut wait = QUIET;
            while ended.recv_timeout(wait) == Err(RecvTimeoutError::Timeout) {
                let text = text(start.elapsed());
                // Return, erase the line, write it again.
                let _ = write!(io::stderr(), "\r\x1b[K{text}");
                wait = INTERVAL;
            }
            if wait == INTERVAL {
                let _ = write!(io::stderr(), "\r\x1b[K");
            }
        };
        Self(Some((end, thread::spawn(show))))
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some((end, thread)) = self.0.take() {
            drop(end);
            let _ = thread.join();
        }
    }
}

fn text(bytes: u64, elapsed: Duration) -> String {
    let (amount, unit) = if bytes < 1 << 30 { (bytes >> 20, "MiB") } else { ((bytes * 10) >> 30, "GiB") };
    let amount = if unit == "GiB" { format!("{}.{}", amount / 10, amount % 10) } else { amount.to_string() };
    format!("plumb has read {amount} {unit} in {} s", elapsed.as_secs())
}

/// A bar for work of known length: `[#####.....] 52 %  3.4 of 6.5 million layouts, 2 s`.
pub(crate) fn bar(done: u64, all: u64, what: &str, elapsed: Duration) -> String {
    const WIDTH: usize = 20;
    let percent = done.saturating_mul(100).checked_div(all).unwrap_or(100).min(100);
    let filled = usize::try_from(percent).unwrap_or(0) * WIDTH / 100;
    let millions = |it: u64| format!("{}.{}", it / 1_000_000, it / 100_000 % 10);
    format!(
        "[{}{}] {percent} %  {} of {} million {what}, {} s",
        "#".repeat(filled),
        ".".repeat(WIDTH - filled),
        millions(done),
        millions(all),
        elapsed.as_secs()
    )
}

/// A source whose bytes are counted.
#[derive(Debug)]
pub(crate) struct Counted<R>(pub(crate) R);

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.0.read(buffer)?;
        READ.fetch_add(n as u64, Ordering::Relaxed);
        Ok(n)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::sync::atomic::Ordering;
    use std::time::Duration;

    use super::{Counted, READ, bar, text};

    #[test]
    fn bytes_are_counted() {
        let before = READ.load(Ordering::Relaxed);
        let mut all = Vec::new();
        Counted(&b"abc"[..]).read_to_end(&mut all).unwrap();
        assert_eq!(all, b"abc");
        assert!(READ.load(Ordering::Relaxed) >= before + 3);
    }

    #[test]
    fn the_bar_fills() {
        let shown = bar(3_400_000, 6_500_000, "layouts", Duration::from_secs(2));
        assert_eq!(shown, "[##########..........] 52 %  3.4 of 6.5 million layouts, 2 s");
        assert!(bar(1, 0, "layouts", Duration::ZERO).starts_with("[####################] 100 %"));
    }

    #[test]
    fn the_line_says_how_much_and_how_long() {
        assert_eq!(text(300 << 20, Duration::from_millis(1900)), "plumb has read 300 MiB in 1 s");
        assert_eq!(text(5 << 29, Duration::from_secs(12)), "plumb has read 2.5 GiB in 12 s");
    }
}
