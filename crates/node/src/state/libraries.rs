//! Libraries that a job could load: NCCL, its network plugins, libfabric, the CUDA runtime.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::Read as _;
use std::path::{Path, PathBuf};

use evidence::node::{Library, LibraryKind};

use super::name_of;
use crate::sysfs::{entries, text};

/// Where installers put them, besides the folders of `LD_LIBRARY_PATH` and of Python packages.
const FOLDERS: &[&str] = &[
    "usr/lib",
    "usr/lib64",
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "usr/local/lib",
    "usr/local/lib64",
    "usr/local/cuda/lib64",
    "usr/local/nccl/lib",
    "opt/nccl/build/lib",
    "opt/amazon/efa/lib",
    "opt/amazon/efa/lib64",
    "opt/amazon/ofi-nccl/lib",
    "opt/amazon/ofi-nccl/lib64",
    "opt/amazon/ofi-nccl/lib/x86_64-linux-gnu",
    "opt/amazon/ofi-nccl/lib/aarch64-linux-gnu",
    "opt/amazon/aws-ofi-nccl/lib",
    "opt/amazon/aws-ofi-nccl/lib64",
    "opt/aws-ofi-nccl/lib",
    "opt/aws-ofi-nccl/install/lib",
    "opt/hpcx/nccl_rdma_sharp_plugin/lib",
];

/// Where Python packages are.
const PYTHONS: &[&str] = &["usr/local/lib", "usr/lib", "opt/conda/lib", "opt/venv/lib", "opt/pytorch/lib"];

/// Most of a file that is searched for its version.
const MOST: u64 = 64 << 20;

pub(super) fn find(root: &Path, variables: &BTreeMap<String, String>) -> Vec<Library> {
    let below = |it: &str| root.join(it.trim_start_matches('/'));
    let mut folders: Vec<PathBuf> = Vec::new();
    let paths = variables.get("LD_LIBRARY_PATH").map(String::as_str).unwrap_or_default();
    folders.extend(paths.split(':').filter(|it| it.starts_with('/')).map(below));
    folders.extend(FOLDERS.iter().map(|it| root.join(it)));
    let prefixes = ["CONDA_PREFIX", "VIRTUAL_ENV"].iter().filter_map(|it| variables.get(*it));
    let pythons = prefixes.map(|it| below(it).join("lib")).chain(PYTHONS.iter().map(|it| root.join(it)));
    for python in pythons.flat_map(|it| entries(&it)) {
        if name_of(&python).is_some_and(|it| it.starts_with("python3")) {
            for packages in ["site-packages", "dist-packages"] {
                let nvidia = python.join(packages).join("nvidia");
                folders.push(nvidia.join("nccl/lib"));
                folders.push(nvidia.join("cuda_runtime/lib"));
            }
        }
    }
    let mut seen = BTreeSet::new();
    let mut found = Vec::new();
    // Providers of libfabric can be files of their own.
    let providers: Vec<PathBuf> = folders.iter().map(|it| it.join("libfabric")).collect();
    for path in folders.iter().chain(&providers).flat_map(|it| entries(it)).filter(|it| is_library(it)) {
        // The names of one file are links to it.
        let Ok(real) = fs::canonicalize(&path) else { continue };
        if seen.insert(real.clone())
            && let Some(library) = library(root, &path, &real)
        {
            found.push(library);
        }
    }
    found.sort_by(|a: &Library, b| (a.kind, &a.path).cmp(&(b.kind, &b.path)));
    found
}

fn is_library(path: &Path) -> bool {
    let names = ["libnccl.so", "libnccl-net", "libfabric.so", "libcudart.so", "libgdrapi.so", "libefa-fi.so"];
    name_of(path).is_some_and(|it| names.iter().any(|name| it.starts_with(name)) && it.contains(".so"))
}

fn library(root: &Path, path: &Path, real: &Path) -> Option<Library> {
    let name = name_of(path)?;
    let shown = path.strip_prefix(root).ok().map_or_else(|| path.to_owned(), |it| Path::new("/").join(it));
    let of = |kind, version| {
        Some(Library { kind, path: shown.to_string_lossy().into_owned(), version, providers: Vec::new() })
    };
    let suffix =
        || name_of(real).and_then(|it| it.split_once(".so.")).map(|it| it.1).filter(|it| it.contains('.'));
    match () {
        () if name.starts_with("libnccl-net") => {
            let beginning = beginning(real)?;
            let version = after(&beginning, b"NET/OFI Initializing aws-ofi-nccl ");
            let ours = version.is_some()
                || contains(&beginning, b"aws-ofi-nccl")
                || contains(&beginning, b"NET/OFI");
            of(if ours { LibraryKind::AwsOfiNccl } else { LibraryKind::NetPlugin }, version)
        }
        () if name.starts_with("libnccl.so") => {
            let version = suffix().map(str::to_owned).or_else(|| packaged(path));
            of(LibraryKind::Nccl, version.or_else(|| after(&beginning(real)?, b"NCCL version ")))
        }
        () if name.starts_with("libfabric.so") => {
            let folder = path.parent()?;
            let version = libfabric(folder).or_else(|| of_distribution(root, folder));
            let library = of(LibraryKind::Libfabric, version)?;
            Some(Library { providers: providers(folder, real), ..library })
        }
        () if name.starts_with("libcudart.so") => of(LibraryKind::CudaRuntime, suffix().map(str::to_owned)),
        () if name.starts_with("libefa-fi") => of(LibraryKind::EfaProvider, None),
        () => of(LibraryKind::GdrCopy, suffix().map(str::to_owned)),
    }
}

/// The release of libfabric: `libfabric.pc` has it. Its file names have the number of the interface, which is another one: release 1.17.0
/// is `libfabric.so.1.20.0`.
fn libfabric(folder: &Path) -> Option<String> {
    let description = text(&folder.join("pkgconfig/libfabric.pc"))?;
    description.lines().find_map(|it| it.strip_prefix("Version:")).map(|it| it.trim().to_owned())
}

/// The release of libfabric in the list of installed packages of Debian and Ubuntu, for a library in a folder of the distribution.
fn of_distribution(root: &Path, folder: &Path) -> Option<String> {
    let below = folder.strip_prefix(root).ok()?;
    let own = below.starts_with("usr/lib") || below.starts_with("lib");
    let status = own.then(|| beginning(&root.join("var/lib/dpkg/status"))).flatten()?;
    let status = String::from_utf8_lossy(&status);
    let lines = status.lines().skip_while(|it| *it != "Package: libfabric1");
    let version = lines.take_while(|it| !it.is_empty()).find_map(|it| it.strip_prefix("Version: "))?;
    // `1:1.17.0-3` is release 1.17.0 in the packaging 3 of epoch 1.
    let version = version.split_once(':').map_or(version, |it| it.1);
    Some(version.rsplit_once('-').map_or(version, |it| it.0).to_owned())
}

/// Libraries that providers inside of libfabric need.
const NEEDED: &[(&[u8], &str)] = &[
    (b"\0libefa.so.", "efa"),
    (b"\0libibverbs.so.", "verbs"),
    (b"\0libpsm2.so.", "psm2"),
    (b"\0libpsm3.so.", "psm3"),
    (b"\0libucp.so.", "ucx"),
];

/// Providers of a libfabric: files in the folder `libfabric` beside it, and those inside by the libraries that it is linked with.
fn providers(folder: &Path, real: &Path) -> Vec<String> {
    let files = entries(&folder.join("libfabric"));
    let files = files.iter().filter_map(|it| name_of(it)?.strip_prefix("lib")?.split_once("-fi.so"));
    let mut found: BTreeSet<String> = files.map(|it| it.0.to_owned()).collect();
    if let Some(bytes) = beginning(real) {
        let inside = NEEDED.iter().filter(|it| contains(&bytes, it.0));
        found.extend(inside.map(|it| it.1.to_owned()));
    }
    found.into_iter().collect()
}

/// The release of a Python package of NCCL: `nvidia_nccl_cu12-2.27.3.dist-info` beside the folder `nvidia`.
fn packaged(path: &Path) -> Option<String> {
    let packages = path.ancestors().nth(4)?;
    entries(packages).iter().find_map(|it| {
        let name = name_of(it)?.strip_suffix(".dist-info")?;
        name.strip_prefix("nvidia_nccl_cu")?.split_once('-').map(|it| it.1.to_owned())
    })
}

fn beginning(path: &Path) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path).ok()?.take(MOST).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

fn contains(bytes: &[u8], text: &[u8]) -> bool {
    position(bytes, text).is_some()
}

fn position(bytes: &[u8], text: &[u8]) -> Option<usize> {
    let first = *text.first()?;
    let mut at = 0;
    while let Some(next) = bytes.get(at..)?.iter().position(|it| *it == first) {
        at += next;
        if bytes.get(at..)?.starts_with(text) {
            return Some(at);
        }
        at += 1;
    }
    None
}

/// The version behind a text: `2.27.3+cuda12.9` without its tail.
fn after(bytes: &[u8], text: &[u8]) -> Option<String> {
    let at = position(bytes, text)? + text.len();
    let tail = bytes.get(at..)?.iter().take(24).take_while(|it| it.is_ascii_digit() || **it == b'.');
    let version: String = tail.map(|it| char::from(*it)).collect();
    let version = version.trim_end_matches('.');
    (version.split('.').count() >= 2).then(|| version.to_owned())
}
