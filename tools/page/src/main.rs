//! Builds `plumb.html`: the crates that read and judge as WebAssembly, a worker that runs them, and the interface, in one file.
//!
//!     cargo run --manifest-path tools/page/Cargo.toml [-- FILE]
//!
//! FILE is target/plumb.html unless another is given.

use std::error::Error;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::write::GzEncoder;
use sha2::{Digest as _, Sha256};

const TARGET: &str = "wasm32-unknown-unknown";

/// Vectors, which every browser has since 2023; and a stack as a program has it, for parsers that go into depth.
const FLAGS: &str = "-D warnings -C target-feature=+simd128 -C link-arg=-zstack-size=8388608";

fn main() -> Result<(), Box<dyn Error>> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = here.join("../..").canonicalize()?;
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    let out = std::env::args_os().nth(1).map_or_else(|| target.join("plumb.html"), PathBuf::from);
    let wasm = guest(here, &target.join("page"))?;
    let page = page(&here.join("ui"), &wasm)?;
    if let Some(folder) = out.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::write(&out, &page)?;
    let mib = |it: usize| it as f64 / f64::from(1 << 20);
    println!(
        "{}: {:.1} MiB, of which WebAssembly {:.1} MiB unpacked",
        out.display(),
        mib(page.len()),
        mib(wasm.len())
    );
    Ok(())
}

/// Compiles what runs in the browser.
fn guest(here: &Path, target: &Path) -> Result<Vec<u8>, Box<dyn Error>> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(cargo)
        .args(["build", "--locked", "--package", "guest", "--lib", "--profile", "wasm", "--target", TARGET])
        .arg("--manifest-path")
        .arg(here.join("Cargo.toml"))
        .arg("--target-dir")
        .arg(target)
        .env("CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_RUSTFLAGS", FLAGS)
        .status()?;
    if !status.success() {
        return Err(format!(
            "the page was not compiled; if the target is missing: rustup target add {TARGET}"
        )
        .into());
    }
    Ok(fs::read(target.join(TARGET).join("wasm/guest.wasm"))?)
}

/// Puts the parts into one file. What is not a script is text: the policy lets one style and one script run, and no connection.
fn page(ui: &Path, wasm: &[u8]) -> Result<String, Box<dyn Error>> {
    let part = |name: &str| fs::read_to_string(ui.join(name)).map_err(|error| format!("{name}: {error}"));
    let (style, worker) = (part("page.css")?, part("worker.js")?);
    // Drawings of machines in an answer come to life as in a report.
    let script = part("../../../crates/report/src/html/devices.js")? + &part("page.js")?;
    for (name, text) in [("page.css", &style), ("the script", &script), ("worker.js", &worker)] {
        if ["</script", "</style", "<!--"].iter().any(|it| text.contains(it)) {
            return Err(format!("{name}: markup in it would end its element").into());
        }
    }
    let mut packed = GzEncoder::new(Vec::new(), Compression::best());
    packed.write_all(wasm)?;
    let policy = format!(
        "default-src 'none'; script-src '{}' 'wasm-unsafe-eval'; style-src '{}'; worker-src blob:; img-src data:; \
         connect-src 'none'; base-uri 'none'; form-action 'none'",
        hash(&script),
        hash(&style),
    );
    Ok(part("page.html")?
        .replace("@POLICY@", &policy)
        .replace("@VERSION@", env!("CARGO_PKG_VERSION"))
        .replace("@STYLE@", &style)
        .replace("@WORKER@", &worker)
        .replace("@SCRIPT@", &script)
        .replace("@WASM@", &STANDARD.encode(packed.finish()?)))
}

/// The hash of an inline style or script in a policy.
fn hash(text: &str) -> String {
    format!("sha256-{}", STANDARD.encode(Sha256::digest(text.as_bytes())))
}
