//! Every message of every release, printed as that release prints it and read like a log.

use std::collections::BTreeMap;

use fabric::Version;
use messages::{Entry, Level, Product, Shape};

/// The line that a release prints for an entry.
fn line(entry: &Entry, release: Version) -> String {
    let text = entry.example();
    let file = if entry.file.is_empty() { "misc/socket.cc" } else { entry.file };
    match (entry.product, entry.level) {
        (Product::Nccl, Level::Warn) if release >= Version::new(2, 30, 7) => {
            format!("node-1:100:101 [0] {file}:42 ({}) NCCL WARN {text}", entry.function)
        }
        (Product::Nccl, Level::Warn) => format!("node-1:100:101 [0] {file}:42 NCCL WARN {text}"),
        (Product::AwsOfiNccl, Level::Warn) => {
            format!("node-1:100:101 [0] {}:42 NCCL WARN {text}", entry.function)
        }
        (_, Level::Info) if entry.product != Product::LibfabricEfa => {
            format!("node-1:100:101 [0] NCCL INFO {text}")
        }
        (_, level) => {
            let level = if level == Level::Warn { "warn" } else { "info" };
            let subsystem = entry.subsystem.to_ascii_lowercase();
            format!("libfabric:100:1700000000::efa:{subsystem}:{}():42<{level}> {text}", entry.function)
        }
    }
}

fn entries(product: Product, level: Level, release: Version) -> impl Iterator<Item = &'static Entry> {
    product.entries().iter().filter(move |it| it.level == level && it.is_in(release))
}

fn is_default(entry: &Entry) -> bool {
    entry.subsystem.split('|').any(|it| matches!(it, "INIT" | "ENV" | "BOOTSTRAP" | "ALL"))
}

fn is_understood(line: &str) -> bool {
    evidence::read_texts([("log", line.as_bytes())]).sources.tally().understood() == 1
}

#[test]
fn counts() {
    for product in Product::ALL {
        for release in product.releases() {
            let mut row = BTreeMap::new();
            for level in [Level::Warn, Level::Info] {
                let all: Vec<_> = entries(product, level, release).collect();
                let missed: Vec<_> = all.iter().filter(|it| !is_understood(&line(it, release))).collect();
                if Some(release) == product.releases().last() || release == Version::new(2, 10, 3) {
                    for it in &missed {
                        println!("MISSED {release} {level:?} {}", line(it, release));
                    }
                }
                let default: Vec<_> = all.iter().filter(|it| is_default(it)).collect();
                let d = default.iter().filter(|it| is_understood(&line(it, release))).count();
                row.insert(
                    level,
                    format!("{}/{} default {}/{}", all.len() - missed.len(), all.len(), d, default.len()),
                );
            }
            println!("{product:?} {release} {row:?}");
        }
    }
}
