//! Which crate may use which. The manifests, ARCHITECTURE.md and `./check` must agree with the table below.
//!
//! The manifests are read as TOML instead of with `cargo metadata`: a test that runs cargo would wait for the lock of the build
//! that runs it, and may reach for the network.

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
    Crate { name: "messages", pure: true, uses: &["fabric"], tests_use: &[] },
    Crate { name: "evidence", pure: true, uses: &["fabric", "messages"], tests_use: &[] },
    Crate { name: "job", pure: true, uses: &["evidence", "fabric", "messages"], tests_use: &[] },
    Crate { name: "nccl", pure: true, uses: &["fabric"], tests_use: &["evidence"] },
    Crate { name: "forecast", pure: true, uses: &["fabric", "nccl"], tests_use: &["job"] },
    Crate { name: "validate", pure: true, uses: &["evidence", "fabric"], tests_use: &[] },
    Crate {
        name: "rules",
        pure: true,
        uses: &["evidence", "fabric", "forecast", "job", "messages", "nccl"],
        tests_use: &[],
    },
    Crate { name: "manifest", pure: true, uses: &["fabric"], tests_use: &["evidence", "rules", "testbed"] },
    Crate { name: "explain", pure: true, uses: &["evidence", "fabric", "messages", "rules"], tests_use: &[] },
    Crate {
        name: "report",
        pure: true,
        uses: &[
            "bench", "evidence", "explain", "fabric", "forecast", "job", "manifest", "nccl", "rules",
            "validate",
        ],
        tests_use: &[],
    },
    Crate {
        name: "answer",
        pure: true,
        uses: &["bench", "evidence", "fabric", "forecast", "job", "nccl", "report", "rules", "validate"],
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
            "answer",
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
            "validate",
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

struct Dependency<'a> {
    /// The crate's own name, also where the manifest gives it another (`package = "..."`).
    package: String,
    value: &'a Value,
}

impl Dependency<'_> {
    fn is_ours(&self) -> bool {
        CRATES.iter().any(|it| it.name == self.package)
    }
}

/// The dependencies of one section (`dependencies`, `dev-dependencies`), those of single targets too.
fn dependencies<'a>(manifest: &'a Table, section: &str) -> Vec<Dependency<'a>> {
    let workspace = self::manifest(&root());
    let inherited = &workspace["workspace"]["dependencies"];
    let package = |name: &str, value: &Value| {
        let named = [Some(value), inherited.get(name)].into_iter().flatten().find_map(|it| it.get("package"));
        named.and_then(Value::as_str).unwrap_or(name).to_owned()
    };
    let targets = manifest.get("target").and_then(Value::as_table);
    let tables = targets.into_iter().flat_map(Table::values).filter_map(Value::as_table);
    tables
        .chain([manifest])
        .filter_map(|it| it.get(section)?.as_table())
        .flat_map(Table::iter)
        .map(|(name, value)| Dependency { package: package(name, value), value })
        .collect()
}

/// The crates of this workspace among the dependencies.
fn ours(manifest: &Table, section: &str) -> BTreeSet<String> {
    dependencies(manifest, section).into_iter().filter(Dependency::is_ours).map(|it| it.package).collect()
}

#[test]
fn a_renamed_crate_is_found() {
    let manifest = "[dependencies]\nother = { package = \"launch\", path = \"../launch\" }\nserde = \"1\"";
    assert_eq!(ours(&manifest.parse().unwrap(), "dependencies"), set(&["launch"]));
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
            for dependency in dependencies(&manifest, "dependencies") {
                let Dependency { package: other, value } = &dependency;
                let optional = value.get("optional").and_then(Value::as_bool) == Some(true);
                let features = value.get("features").and_then(Value::as_array);
                let engines = features.is_some_and(|it| it.iter().any(|it| it.as_str() == Some("engines")));
                assert!(!engines, "{name} turns the engines of {other} on, and {} reaches {name}", it.name);
                if !optional && dependency.is_ours() && reached.insert(other.clone()) {
                    open.push(other.clone());
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
const ACTS: [&str; 10] = [
    "std::fs",
    "std::env",
    "std::process",
    "std::thread",
    "TcpStream",
    "TcpListener",
    "UdpSocket",
    "SystemTime",
    "Instant::now",
    "println!",
];

/// What of [`ACTS`] a text names outside tests, also as `use std::{fs, env}`.
fn acts(text: &str) -> Vec<&'static str> {
    let mut code = without_tests(text);
    let groups: Vec<String> = code.split("std::{").skip(1).flat_map(first_segments).collect();
    for name in groups {
        code += &format!("std::{name}\n");
    }
    ACTS.into_iter().filter(|it| code.contains(it)).collect()
}

/// `fs` and `io` of `fs, io::{self, Write}};`.
fn first_segments(group: &str) -> Vec<String> {
    let (mut names, mut depth) = (vec![String::new()], 0_usize);
    for letter in group.chars() {
        match letter {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => names.push(String::new()),
            _ if depth == 0 => names.last_mut().unwrap().push(letter),
            _ => {}
        }
    }
    names.iter().map(|it| it.trim().split("::").next().unwrap_or_default().to_owned()).collect()
}

/// The text without items under `#[cfg(test)]`. In formatted code an item ends with the first line that is indented as the
/// attribute is and ends with `;` or `}`.
fn without_tests(text: &str) -> String {
    let indentation = |line: &str| line.len() - line.trim_start().len();
    let mut kept = String::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if line.trim() == "#[cfg(test)]" {
            let ends = |it: &str| indentation(it) == indentation(line) && it.ends_with([';', '}']);
            lines.by_ref().find(|it| ends(it));
        } else {
            kept += line;
            kept.push('\n');
        }
    }
    kept
}

#[test]
fn what_acts_is_found() {
    for (text, expected) in [
        ("use std::fs;", &["std::fs"][..]),
        ("use std::{env, fs::File};", &["std::fs", "std::env"]),
        ("use std::{\n    collections::{BTreeMap, BTreeSet},\n    process,\n};", &["std::process"]),
        ("use std::{fmt, io::{self, Write}};", &[]),
        ("#[cfg(test)]\nmod testing;\n\nuse std::thread;", &["std::thread"]),
        ("#[cfg(test)]\nmod tests {\n    use std::fs;\n\n    fn f() {}\n}\n", &[]),
        ("    #[cfg(test)]\n    fn f() {\n        std::env::args();\n    }\n    use std::fs;", &["std::fs"]),
    ] {
        assert_eq!(acts(text), expected, "{text}");
    }
}

#[test]
fn pure_crates_name_no_file_clock_or_environment() {
    let folders = folders();
    let mut files = 0;
    for it in CRATES.iter().filter(|it| it.pure) {
        for path in sources(&folders[it.name].join("src")) {
            files += 1;
            let named = acts(&read(&path));
            assert!(named.is_empty(), "{} names {named:?}: `cli` or `node` does that", path.display());
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

/// `./check` builds the page for WebAssembly, and with it what the page reaches.
#[test]
fn the_page_holds_every_pure_crate() {
    assert!(read(&root().join("check")).contains("tools/page/check"), "./check builds the page");
    let (folders, page) = (folders(), manifest(&root().join("tools/page/guest")));
    let mut open: Vec<String> = ours(&page, "dependencies").into_iter().collect();
    let mut reached = BTreeSet::new();
    while let Some(name) = open.pop() {
        if reached.insert(name.clone()) && CRATES.iter().any(|it| it.name == name && it.pure) {
            open.extend(ours(&manifest(&folders[&name]), "dependencies"));
        }
    }
    for it in CRATES {
        assert!(!it.pure || reached.contains(it.name), "the page does not reach {}", it.name);
    }
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
