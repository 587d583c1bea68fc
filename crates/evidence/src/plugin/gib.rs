//! gIB of Google Cloud: RoCE on A3 Ultra, A4 and later.

use super::{Known, Plugin, Release};

/// `Using network gIB`
pub static PLUGIN: Plugin = Plugin {
    name: "gIB",
    networks: &["gIB"],
    network: None,
    called: |_| "RoCE".to_owned(),
    prefix: "NET/gIB : ",
    read: |facts, message, quote| {
        let Some(version) = message.strip_prefix("Initializing gIB v") else { return Known::No };
        facts.release.note(Release { plugin: &PLUGIN, version: version.trim().into() }, quote);
        Known::Routine
    },
    variables: &[],
    lines: &[],
    source: "docs.cloud.google.com/ai-hypercomputer/docs/nccl (sample log); GoogleCloudPlatform/cluster-toolkit v1.44.1 (RoCE)",
};

#[cfg(test)]
mod tests {
    use super::super::read;
    use super::PLUGIN;

    #[test]
    fn release() {
        let facts = read(&PLUGIN, &["Initializing gIB v1.0.2"]);
        assert_eq!(facts.release.value().map(|it| &*it.version), Some("1.0.2"));
    }
}
