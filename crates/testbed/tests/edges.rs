//! Which crate may use which. The manifests, ARCHITECTURE.md and `./check` must agree with the table below.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use toml::{Table, Value};

/// A crate and the crates of this workspace that it may use.
struct Crate {
    name: &'static str,
    /// No I/O, no clock, no environment, no `unsafe`: builds for WebAssembly.
    pure: bool,
    uses: &'static [&'static str],
    /// What only its tests and examples use.
    tests_use: &'static [&'static str],
}

const CRATES: &[Crate] = &[
    Crate { name: "fabric", pure: true, uses: &[], tests_use: &[] },
    Crate { name: "evidence", pure: true, uses: &["fabric"], tests_use: &[] },
    Crate { name: "job", pure: true, uses: &["evidence", "fabric"], tests_use: &[] },
    Crate { name: "nccl", pure: true, uses: &["fabric"], tests_use: &["evidence"] },
    Crate { name: "forecast", pure: true, uses: &["fabric", "nccl"], tests_use: &["job"] },
    Crate {
        name: "rules",
        pure: true,
        uses: &["evidence", "fabric", "forecast", "job", "nccl"],
        tests_use: &[],
    },
    Crate { name: "manifest", pure: true, uses: &["fabric"], tests_use: &["evidence", "rules", "testbed"] },
    Crate { name: "explain", pure: true, uses: &["evidence", "fabric", "rules"], tests_use: &[] },
    Crate {
        name: "report",
        pure: true,
        uses: &["bench", "evidence", "explain", "fabric", "forecast", "job", "manifest", "nccl", "rules"],
        tests_use: &[],
    },
    Crate { name: "collective", pure: false, uses: &[], tests_use: &["testbed"] },
    Crate { name: "launch", pure: false, uses: &[], tests_use: &["testbed"] },
    Crate { name: "bench", pure: false, uses: &["collective", "fabric"], tests_use: &["bench", "testbed"] },
    Crate { name: "node", pure: false, uses: &["evidence", "fabric"], tests_use: &[] },
    Crate {
        name: "plumb",
        pure: false,
        uses: &[
            "bench",
            "collective",
            "evidence",
            "explain",
            "fabric",
            "forecast",
            "job",
            "launch",
            "manifest",
            "nccl",
            "node",
            "report",
            "rules",
        ],
        tests_use: &["testbed"],
    },
    Crate { name: "testbed", pure: false, uses: &[], tests_use: &[] },
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The folders under `crates/`, by the name of the package.
fn folders() -> BTreeMap<String, PathBuf> {
    let entries = fs::read_dir(root().join("crates")).unwrap();
    let folder = |path: PathBuf| {
        let manifest = manifest(&path);
        (manifest["package"]["name"].as_str().unwrap().to_owned(), path)
    };
    entries.map(|it| folder(it.unwrap().path())).collect()
}

fn manifest(folder: &Path) -> Table {
    let path = folder.join("Cargo.toml");
    read(&path).parse().unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The dependencies of one section (`dependencies`, `dev-dependencies`), those of single targets too.
fn dependencies<'a>(manifest: &'a Table, section: &str) -> Vec<(&'a str, &'a Value)> {
    let targets = manifest.get("target").and_then(Value::as_table);
    let tables = targets.into_iter().flat_map(Table::values).filter_map(Value::as_table);
    tables
        .chain([manifest])
        .filter_map(|it| it.get(section)?.as_table())
        .flat_map(|it| it.iter().map(|(name, value)| (name.as_str(), value)))
        .collect()
}

/// The crates of this workspace among the dependencies.
fn ours(manifest: &Table, section: &str) -> BTreeSet<String> {
    let names = dependencies(manifest, section).into_iter().map(|it| it.0);
    names.filter(|name| CRATES.iter().any(|it| it.name == *name)).map(str::to_owned).collect()
}

fn set(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|it| (*it).to_owned()).collect()
}

#[test]
fn every_crate_is_in_the_table() {
    let names: BTreeSet<String> = folders().into_keys().collect();
    let table: BTreeSet<String> = CRATES.iter().map(|it| it.name.to_owned()).collect();
    assert_eq!(names, table, "CRATES in {} must list the crates under crates/", file!());
}

#[test]
fn crates_use_only_what_they_may() {
    let folders = folders();
    let mut wrong = Vec::new();
    for it in CRATES {
        let manifest = manifest(&folders[it.name]);
        assert!(dependencies(&manifest, "build-dependencies").is_empty(), "{} has a build script", it.name);
        for (section, allowed) in [("dependencies", it.uses), ("dev-dependencies", it.tests_use)] {
            let (used, allowed) = (ours(&manifest, section), set(allowed));
            for other in used.difference(&allowed) {
                wrong.push(format!(
                    "{} may not use {other} ({section}): pass what it needs as an argument, move the code to a crate that may, \
                     or, if the plan changes, add the edge to this test and to the table in ARCHITECTURE.md",
                    it.name
                ));
            }
            for other in allowed.difference(&used) {
                wrong.push(format!(
                    "{} no longer uses {other} ({section}): remove the edge from this test",
                    it.name
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn only_tests_use_the_testbed() {
    for it in CRATES {
        assert!(!it.uses.contains(&"testbed"), "{} uses testbed outside tests", it.name);
    }
}

/// `report` reads the results of `bench`, whose engines are an optional feature: that edge is followed only where it is enabled.
#[test]
fn pure_crates_reach_nothing_that_acts() {
    let folders = folders();
    for it in CRATES.iter().filter(|it| it.pure) {
        let (mut reached, mut open) = (BTreeSet::new(), vec![it.name.to_owned()]);
        while let Some(name) = open.pop() {
            let manifest = manifest(&folders[&name]);
            for (other, value) in dependencies(&manifest, "dependencies") {
                let optional = value.get("optional").and_then(Value::as_bool) == Some(true);
                let features = value.get("features").and_then(Value::as_array);
                let engines = features.is_some_and(|it| it.iter().any(|it| it.as_str() == Some("engines")));
                assert!(!engines, "{name} turns the engines of {other} on, and {} reaches {name}", it.name);
                if !optional && CRATES.iter().any(|it| it.name == other) && reached.insert(other.to_owned()) {
                    open.push(other.to_owned());
                }
            }
        }
        for acts in ["collective", "launch", "node"] {
            assert!(!reached.contains(acts), "{} is pure and reaches {acts}", it.name);
        }
    }
}

#[test]
fn pure_crates_forbid_unsafe_code() {
    let folders = folders();
    for it in CRATES.iter().filter(|it| it.pure) {
        let path = folders[it.name].join("src/lib.rs");
        assert!(
            read(&path).lines().any(|it| it == "#![forbid(unsafe_code)]"),
            "{} needs #![forbid(unsafe_code)]",
            path.display()
        );
    }
}

/// What a pure crate must not name outside tests.
const ACTS: [&str; 8] = [
    "std::fs",
    "std::env",
    "std::process",
    "std::thread",
    "TcpStream",
    "UdpSocket",
    "SystemTime",
    "Instant::now",
];

#[test]
fn pure_crates_name_no_file_clock_or_environment() {
    let folders = folders();
    let mut files = 0;
    for it in CRATES.iter().filter(|it| it.pure) {
        for path in sources(&folders[it.name].join("src")) {
            files += 1;
            let text = read(&path);
            let code = text.split("#[cfg(test)]").next().unwrap_or_default();
            for word in ACTS {
                assert!(!code.contains(word), "{} names {word}: `cli` or `node` does that", path.display());
            }
        }
    }
    assert!(files > 300, "{files} files");
}

/// The files of Rust below a folder that are compiled outside tests.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|it| it == "rs") && name != "tests" && name != "testing" {
            found.push(path);
        }
    }
    found
}

#[test]
fn check_builds_the_pure_crates_for_wasm() {
    let check = read(&root().join("check"));
    let list = check.lines().find_map(|it| it.strip_prefix("pure_crates=(")?.strip_suffix(')'));
    let listed: BTreeSet<String> =
        list.expect("pure_crates in ./check").split(' ').map(str::to_owned).collect();
    let pure: BTreeSet<String> = CRATES.iter().filter(|it| it.pure).map(|it| it.name.to_owned()).collect();
    assert_eq!(listed, pure, "pure_crates in ./check must list the pure crates");
}

/// A row is ``| `name` | `used`, `used` | ... |``; the binary's crate stands under its folder's name.
#[test]
fn the_architecture_lists_the_same_edges() {
    let text = read(&root().join("ARCHITECTURE.md"));
    let mut rows = text.lines().skip_while(|it| !it.starts_with("| crate | uses |")).skip(2);
    let mut listed = BTreeMap::new();
    for row in rows.by_ref().take_while(|it| it.starts_with('|')) {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let named = |cell: &str| -> BTreeSet<String> {
            cell.split('`').skip(1).step_by(2).map(str::to_owned).collect()
        };
        let name = named(cells[1]).into_iter().next().expect("the name of a crate");
        listed.insert(if name == "cli" { "plumb".to_owned() } else { name }, named(cells[2]));
    }
    let table: BTreeMap<String, BTreeSet<String>> =
        CRATES.iter().map(|it| (it.name.to_owned(), set(it.uses))).collect();
    assert_eq!(listed, table, "the table of crates in ARCHITECTURE.md must list the edges of {}", file!());
}

/// The last column names files (`evidence/read.rs`; without a crate, that of the file before) and constants in them.
#[test]
fn limits_stand_where_the_architecture_says() {
    let text = read(&root().join("ARCHITECTURE.md"));
    let rows = text.lines().skip_while(|it| !it.starts_with("| what | limit | where |")).skip(2);
    let mut rows = rows.take_while(|it| it.starts_with('|')).peekable();
    assert!(rows.peek().is_some(), "the table of limits");
    for row in rows {
        let cell = row.rsplit('|').nth(1).expect("the last column");
        let (mut of, mut code, mut constants) = (String::new(), String::new(), Vec::new());
        for name in cell.split('`').skip(1).step_by(2) {
            if Path::new(name).extension().is_none_or(|it| it != "rs") {
                constants.push(name.rsplit("::").next().unwrap_or(name));
                continue;
            }
            let crates = root().join("crates");
            let whole = name.split_once('/').map(|(of, file)| (of, crates.join(of).join("src").join(file)));
            let path = match whole.filter(|it| it.1.is_file()) {
                Some((name, path)) => {
                    name.clone_into(&mut of);
                    path
                }
                None => crates.join(&of).join("src").join(name),
            };
            code += &read(&path);
        }
        for name in constants {
            assert!(
                code.contains(&format!("const {name}: ")),
                "ARCHITECTURE.md: no constant {name} in {row}"
            );
        }
    }
}
