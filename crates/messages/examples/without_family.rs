//! Prints the warnings that no family describes, one line each: after a new release, what is left to describe.
//!
//! ```text
//! cargo run -p messages --example without_family -- 2.30.7
//! ```

use fabric::Version;
use messages::{Level, all};

fn main() {
    let since = std::env::args().nth(1).and_then(|it| Version::parse(&it));
    for entry in all().filter(|it| it.level == Level::Warn && it.family().is_none()) {
        if since.is_none_or(|since| entry.first >= since) {
            println!(
                "{}-{}\t{}\t{}\t{}",
                entry.first,
                entry.last,
                entry.product.name(),
                entry.file,
                entry.text
            );
        }
    }
}
