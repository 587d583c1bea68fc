//! Absolute paths, except system folders.

use super::scan::{before, is_name, is_number, listed};

/// Folders that exist on every system.
pub(super) static SYSTEM: &str = "/bin /dev /etc /lib /lib32 /lib64 /opt/amazon /opt/aws /opt/aws-ofi-nccl /opt/conda /opt/hpcx \
    /opt/mellanox /opt/nvidia /opt/pytorch /proc /pytorch /run/nvidia-topologyd /sbin /sys /usr/bin \
    /usr/include /usr/lib /usr/lib32 /usr/lib64 /usr/libexec /usr/local/cuda /usr/local/lib \
    /usr/local/nvidia /usr/sbin /usr/share /var/run/nvidia-topologyd";

/// Hosts of the public internet.
pub(super) static PUBLIC: &str = "amazon.com github.com githubusercontent.com huggingface.co nvidia.com openmpi.org open-mpi.org \
    python.org pytorch.org readthedocs.io w3.org localhost";

/// The end of the path that begins at `at`, if it should be hidden.
pub(super) fn path_end(text: &str, at: usize) -> Option<usize> {
    let rest = text.get(at..)?;
    let home = ["/home/", "/Users/"].iter().any(|it| rest.starts_with(it));
    // `//` after a colon belongs to a URL.
    if !rest.starts_with(['/', '~']) || (rest.starts_with("//") && before(text, at) == Some(b':')) {
        return None;
    }
    let free =
        before(text, at).is_none_or(|it| it.is_ascii_whitespace() || b"\"'`=:,;([{<>|@!".contains(&it));
    if !free && !home {
        return None;
    }
    let path = rest.get(..rest.find(is_path_limit).unwrap_or(rest.len()))?.trim_end_matches(['.', '/']);
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/').filter(|it| !it.is_empty() && *it != ".") {
        if part == ".." {
            parts.pop();
        } else {
            parts.push(part);
        }
    }
    let deep = path.split('/').filter(|it| !it.is_empty()).count() >= 2;
    // `~/data` and `~alice/data`, but not `~0.5/s`.
    let tilde =
        path.strip_prefix('~').is_none_or(|it| !it.starts_with(|it: char| it.is_ascii_digit() || it == '~'));
    let real = format!("/{}", parts.join("/"));
    let system = SYSTEM
        .split_ascii_whitespace()
        .any(|it| real.strip_prefix(it).is_some_and(|it| it.is_empty() || it.starts_with('/')))
        || real.starts_with("/usr/local/cuda-");
    (deep && tilde && !system).then(|| at + path.len())
}

/// The user whose home a path names.
pub(super) fn user_in(path: &str) -> Option<&str> {
    let mut parts = path.split('/');
    if let Some(name) = path.strip_prefix('~').and_then(|it| it.split('/').next()).filter(|it| !it.is_empty())
    {
        return Some(name).filter(|it| !is_common_user(it));
    }
    parts.find(|it| matches!(*it, "home" | "Users" | "users" | "user"))?;
    parts.next().filter(|it| it.bytes().all(is_name) && !is_common_user(it))
}

pub(super) fn is_common_user(name: &str) -> bool {
    static COMMON: &str = "admin app centos debian ec2-user git hadoop jenkins jovyan nobody root runner shared slurm \
        ubuntu user users work workspace";
    listed(COMMON, name) || is_number(name)
}

/// The extension of a file name, if it is a usual one.
pub(super) fn extension(name: &str) -> String {
    static KNOWN: &str = "bin c cc cfg conf cpp cu csv err gz h hpp html ini json jsonl log md out pt py safetensors sh \
        so sock tar tgz toml txt xml yaml yml zip zst";
    let last = name.rsplit('/').next().unwrap_or_default();
    let mut kept: Vec<&str> = Vec::new();
    // From the end: `.log.gz`; a library's version after `.so` is passed over.
    for part in last.split('.').skip(1).collect::<Vec<_>>().into_iter().rev() {
        if listed(KNOWN, part) {
            kept.push(part);
            if !matches!(part, "gz" | "zst") {
                break;
            }
        } else if !is_number(part) || !kept.is_empty() {
            break;
        }
    }
    kept.iter().rev().fold(String::new(), |all, it| all + "." + it)
}

pub(super) fn is_path_limit(it: char) -> bool {
    it.is_whitespace() || it.is_control() || "\"'`,;:()[]{}<>|\\".contains(it)
}

pub(super) fn is_url_limit(it: char) -> bool {
    it.is_whitespace() || it.is_control() || "\"'`,;(){}<>|\\=".contains(it)
}
