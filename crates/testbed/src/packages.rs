//! What comes from packages, as `tools/packages` lists it.

use std::path::{Path, PathBuf};

const LIST: &str = include_str!("../../../tools/packages");

/// Where this program or library of `tools/packages` is installed. Fails if it is not: a test never skips.
#[track_caller]
pub fn need(name: &str) -> PathBuf {
    let Some((kind, package)) = package_of(name) else {
        panic!("`{name}` is not listed in tools/packages");
    };
    let Some(path) = folders(kind).into_iter().map(|folder| folder.join(name)).find(|it| it.exists()) else {
        panic!("`{name}` is missing: `./check` installs it, with the {kind} package {package}");
    };
    path
}

/// The kind of package, `apt` or `pip`, and its name.
fn package_of(name: &str) -> Option<(&'static str, &'static str)> {
    let lines = LIST.lines().filter(|line| !line.starts_with('#'));
    lines.map(str::split_whitespace).find_map(|mut words| {
        let (kind, package) = (words.next()?, words.next()?);
        words.any(|it| it == name).then_some((kind, package))
    })
}

fn folders(kind: &str) -> Vec<PathBuf> {
    if kind == "pip" {
        // The test program lies somewhere in the target folder.
        let program = std::env::current_exe().expect("the path of this program");
        return program.ancestors().map(|it| it.join("python/bin")).collect();
    }
    let mut folders: Vec<PathBuf> =
        std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()).collect();
    // Daemons stand where the PATH of a user may not lead.
    folders.extend(["/usr/sbin", "/usr/lib"].map(PathBuf::from));
    let libraries = Path::new("/usr/lib").read_dir().into_iter().flatten().flatten();
    folders.extend(libraries.map(|it| it.path()).filter(|it| it.to_string_lossy().ends_with("-linux-gnu")));
    folders
}

#[cfg(test)]
mod tests {
    use super::package_of;

    #[test]
    fn a_name_leads_to_its_package() {
        assert_eq!(package_of("tc"), Some(("apt", "iproute2")));
        assert_eq!(package_of("iproute2"), None);
        assert_eq!(package_of("apt"), None);
    }

    #[test]
    #[should_panic(expected = "`libnowhere.so` is not listed in tools/packages")]
    fn what_is_not_listed_is_a_mistake_of_the_test() {
        super::need("libnowhere.so");
    }
}
