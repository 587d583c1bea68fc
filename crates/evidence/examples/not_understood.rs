//! Prints the lines of the given files that are not understood: what a new release or tool has added.
//!
//! `cargo run -p evidence --example not_understood -- cases/*/*.log | sort | uniq -c | sort -rn | head`

use std::io::Write as _;

use evidence::{Kind, read_texts};

fn main() -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    for name in std::env::args_os().skip(1) {
        let text = std::fs::read(&name)?;
        for line in text.split(|it| *it == b'\n') {
            let case = read_texts([("line", line)]);
            let tally = case.sources.tally();
            if tally.not_blank() > 0 && tally.understood() == 0 && tally.kind() == Kind::Unknown {
                out.write_all(line)?;
                out.write_all(b"\n")?;
            }
        }
    }
    Ok(())
}
