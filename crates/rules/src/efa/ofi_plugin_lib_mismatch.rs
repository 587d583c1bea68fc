//! The plugin and the libraries it needs do not match.

use evidence::signals::efa::{
    ENDPOINT_FAILED, GPUDIRECT_REFUSED, LIBFABRIC_TOO_OLD, LIBRARY_MISSING, LIBRARY_SYMBOL, LIBRARY_VERSION,
    PLUGIN_LOAD,
};
use evidence::{Sighting, Source};

use super::providers;
use crate::{Check, Checked, Confidence, Finding, Log, Role, Rule, Severity};

/// See the module documentation.
pub static RULE: Rule = Rule {
    id: "ofi-plugin-lib-mismatch",
    title: "aws-ofi-nccl and the libraries it needs do not match",
    severity: Severity::Error,
    role: Role::Cause,
    needs: &[Source::JobOutput],
    why: "libnccl-net.so is installed, but a library it needs is missing, too old or a second copy. NCCL then continues without EFA, \
          usually without a warning.",
    fix: "Use one EFA installer for the whole image: it installs a plugin, libfabric and rdma-core that match. Remove the libfabric and \
          rdma-core of the distribution and of conda, copy into a runtime stage not only /opt/amazon but also what it needs (libhwloc15), \
          and check with `ldd /opt/amazon/ofi-nccl/lib/libnccl-net.so`.",
    references: &[
        "https://github.com/awslabs/awsome-distributed-ai/issues/292",
        "https://github.com/PrimeIntellect-ai/prime-rl/pull/3452",
        "https://github.com/aws/aws-ofi-nccl/issues/241",
    ],
    checks: &[Check::Log(check)],
};

fn check(log: &Log) -> Checked {
    let signals = [
        &LIBRARY_VERSION,
        &LIBRARY_MISSING,
        &LIBRARY_SYMBOL,
        &PLUGIN_LOAD,
        &LIBFABRIC_TOO_OLD,
        &GPUDIRECT_REFUSED,
        &ENDPOINT_FAILED,
    ];
    let found = log.find_signals(&signals, Source::JobOutput)?;
    let mismatches: Vec<(&Sighting, Confidence, String)> = found
        .iter()
        .filter_map(|it| mismatch(log, it).map(|(confidence, message)| (*it, confidence, message)))
        .collect();
    let Some(best) = mismatches.iter().map(|it| it.1).max() else { return Ok(Vec::new()) };
    let lines: Vec<_> = mismatches.iter().filter(|it| it.1 == best).map(|it| it.0).collect();
    let message = mismatches.iter().find(|it| it.1 == best).map_or("", |it| &it.2);
    Ok(vec![Finding::new(best, message).by(log, &lines)])
}

/// The mismatch that a line shows, if any.
fn mismatch(log: &Log, line: &Sighting) -> Option<(Confidence, String)> {
    let symbol = line.get("symbol");
    if *line.signal == LIBRARY_VERSION {
        let library = line.get("library").rsplit('/').next().unwrap_or_default();
        let ours = symbol.starts_with("FABRIC_") || symbol.starts_with("EFA_");
        let plugin = ["libnccl-net", "libfabric", "libefa"].iter().any(|it| library.starts_with(it));
        let message = format!("{library} needs {symbol}, which the loaded library does not have");
        return (ours || plugin).then_some((Confidence::Certain, message));
    }
    if *line.signal == LIBRARY_SYMBOL {
        return Some((
            Confidence::Certain,
            format!("the plugin needs the symbol {symbol}, which no loaded library has"),
        ));
    }
    if *line.signal == LIBRARY_MISSING {
        let text = &line.quote.text;
        let name = ["libhwloc", "libfabric", "libefa"]
            .iter()
            .find(|it| text.contains(*it))
            .copied()
            .unwrap_or("a library");
        return Some((Confidence::Likely, format!("{name}, which aws-ofi-nccl needs, is not in the image")));
    }
    if *line.signal == PLUGIN_LOAD {
        // The plugin's own name here means that there is no plugin, which another rule judges.
        let library = line.get("library").rsplit([' ', '/']).next().unwrap_or_default();
        let own = library.starts_with("libnccl-net") || line.get("plugin").ends_with(library);
        return (!own && library.contains(".so")).then(|| {
            (
                Confidence::Likely,
                format!("the network plugin was found, but {library}, which it needs, was not"),
            )
        });
    }
    if *line.signal == ENDPOINT_FAILED && line.get("reason").contains("Cannot allocate memory") {
        return None;
    }
    if *line.signal == GPUDIRECT_REFUSED || *line.signal == ENDPOINT_FAILED {
        let message =
            "libfabric rejects a request of the plugin; the usual reason is a second libfabric in the image";
        let confidence =
            if *line.signal == GPUDIRECT_REFUSED { Confidence::Likely } else { Confidence::Possible };
        return Some((confidence, message.to_owned()));
    }
    // Other providers than EFA do not know the options of EFA: that is normal.
    let other = providers(log).any(|it| it.0 != "efa");
    if line.quote.text.contains("CUDA Runtime") {
        return Some((
            Confidence::Likely,
            "the plugin does not find the CUDA runtime library in this image".to_owned(),
        ));
    }
    let (confidence, message) = match line.get("version") {
        "" => (
            Confidence::Likely,
            "libfabric does not know an option that the plugin sets: it is older than the plugin expects"
                .to_owned(),
        ),
        version => (
            Confidence::Certain,
            format!("the plugin needs libfabric {} or later", version.trim_end_matches('.')),
        ),
    };
    (!other).then_some((confidence, message))
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::Confidence;
    use crate::testing::{findings, quiet};

    #[test]
    fn fires_on_what_the_linker_says() {
        let version = "a:1:2 [0] NCCL INFO NET/Plugin : dlerror=/opt/amazon/efa/lib/libfabric.so.1: version `FABRIC_1.7' not found \
                       (required by /x/libnccl-net.so) No plugin found (libnccl-net.so), using internal implementation\n";
        let found = findings(&RULE, version);
        assert_eq!(found[0].confidence, Confidence::Certain);
        assert_eq!(
            found[0].message,
            "libnccl-net.so needs FABRIC_1.7, which the loaded library does not have"
        );
        for text in [
            "libhwloc.so.15: cannot open shared object file\n",
            "a:1:2 [0] NCCL INFO NET/Plugin: libhwloc.so.15: cannot open shared object file: No such file or directory\n",
            "a:1:2 [0] NCCL INFO NET/Plugin : Plugin load (libnccl-net.so) returned 2 : libcudart.so.11.0: cannot open shared object file\n",
            "configure_sendrecv_inorder:213 NCCL WARN NET/OFI Couldn't set FI_OPT_E\n",
        ] {
            assert_eq!(findings(&RULE, text)[0].confidence, Confidence::Likely, "{text}");
        }
    }

    #[test]
    fn comes_before_a_driver_without_gpudirect() {
        let refused =
            "a:1:2 [0] x:1 NCCL WARN NET/OFI GDR disabled on GDR-supported instance type p5.48xlarge\n";
        assert_eq!(crate::testing::ids(refused)[..2], ["ofi-plugin-lib-mismatch", "gpudirect-off"]);
    }

    #[test]
    fn a_plugin_that_is_not_there_is_something_else() {
        quiet(
            &RULE,
            "a:1:2 [0] NCCL INFO NET/Plugin : Plugin load (libnccl-net.so) returned 2 : libnccl-net.so: cannot open shared object file\n\
             Unable to load libnccl-net.so : libnccl-net.so: cannot open shared object file: No such file or directory\n",
        );
    }

    #[test]
    fn libraries_of_others_are_not_ours() {
        quiet(
            &RULE,
            "python: /lib/x86_64-linux-gnu/libc.so.6: version `GLIBC_2.34' not found (required by /x/libfoo.so)\n",
        );
    }
}
