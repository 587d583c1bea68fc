//! A machine that a text says it is of, outside of logs: labels of a Kubernetes node, the metadata service of a cloud, DMI.
//!
//! ```text
//! node.kubernetes.io/instance-type=p5.48xlarge      kubectl describe node
//! "instanceType" : "p5.48xlarge",                    instance identity document of EC2
//! "vmSize": "Standard_ND96isr_H100_v5",              metadata service of Azure
//! machineType: projects/1/machineTypes/a3-megagpu-8g Google
//! Product Name: p5.48xlarge                          dmidecode
//! p5.48xlarge                                        http://169.254.169.254/latest/meta-data/instance-type
//! ```

use evidence::{Quote, Spot};
use fabric::catalogue::{self, Model};

use crate::known::{Known, Source};

/// What stands before the name, in small letters and without `-`, `_` and blanks.
static KEYS: &[&str] = &["instancetype", "machinetype", "vmsize", "productname"];

/// More lines than what a metadata service or `dmidecode` prints.
const SHORT: usize = 4;
/// How much of a text is searched.
const MOST: usize = 1 << 22;

/// The first machine of the catalogue that a line states.
pub(super) fn read(text: &[u8]) -> Option<Known<&'static Model>> {
    let text = String::from_utf8_lossy(text.get(..text.len().min(MOST)).unwrap_or_default());
    let lines = || (0_u32..).zip(text.lines());
    let known = |(line, text): (u32, &str), model| {
        let quote = Quote::new(Spot { region: 0, line }, text.as_bytes());
        Known::new(model, Source::Line(quote))
    };
    if let Some(found) = lines().find_map(|it| Some(known(it, of_line(it.1)?))) {
        return Some(found);
    }
    let is_short = lines().filter(|it| !it.1.trim().is_empty()).count() <= SHORT;
    lines().filter(|_| is_short).find_map(|it| Some(known(it, catalogue::find(it.1.trim())?)))
}

fn of_line(line: &str) -> Option<&'static Model> {
    let parts = line.split([',', ' ', '\t']).filter_map(|it| it.split_once(['=', ':']));
    let whole = line.split_once([':', '=']);
    parts.chain(whole).find_map(|(key, value)| {
        let key: String =
            key.chars().filter(char::is_ascii_alphanumeric).map(|it| it.to_ascii_lowercase()).collect();
        let value = value.trim().trim_matches(['"', '\'', ',', ';', ' ', '{', '}']);
        let value = value.rsplit('/').next().unwrap_or(value);
        KEYS.iter().any(|it| key.ends_with(it)).then(|| catalogue::find(value)).flatten()
    })
}

/// Whether a text is a Markdown document: headings, and fences or links.
pub(super) fn is_document(text: &[u8]) -> bool {
    let text = String::from_utf8_lossy(text.get(..text.len().min(1 << 16)).unwrap_or_default());
    let heading = |it: &str| {
        let rest = it.trim_start_matches('#');
        it.len() - rest.len() <= 6 && rest.len() < it.len() && rest.starts_with(' ')
    };
    let fences = text.lines().filter(|it| it.trim_start().starts_with("```")).count();
    text.lines().any(heading) && (fences > 1 || text.contains("]("))
}

#[cfg(test)]
mod tests {
    use super::{is_document, read};

    #[test]
    fn places_where_a_machine_says_what_it_is() {
        for (text, want) in [
            ("Labels: a=b\n        node.kubernetes.io/instance-type=p5.48xlarge\n", Some("p5.48xlarge")),
            ("{\n  \"instanceType\" : \"p4d.24xlarge\",\n  \"region\" : \"x\"\n}\n", Some("p4d.24xlarge")),
            ("{\"instanceType\" : \"p4d.24xlarge\"}\n", Some("p4d.24xlarge")),
            ("INSTANCE_TYPE=p5en.48xlarge\n", Some("p5en.48xlarge")),
            (
                "System Information\n\tManufacturer: Amazon EC2\n\tProduct Name: p5.48xlarge\n",
                Some("p5.48xlarge"),
            ),
            ("machineType: projects/1/machineTypes/a3-megagpu-8g\n", Some("a3-megagpu-8g")),
            ("p5.48xlarge\n", Some("p5.48xlarge")),
            ("We run on p5.48xlarge, mostly.\n", None),
            ("plumb topo --instance p5.48xlarge\n", None),
            ("a\nb\nc\nd\np5.48xlarge\n", None),
        ] {
            assert_eq!(read(text.as_bytes()).map(|it| it.value.name), want, "{text}");
        }
    }

    #[test]
    fn documents() {
        assert!(is_document(b"# plumb\n\nSee [docs](docs/a.md).\n"));
        assert!(is_document(b"text\n## Use\n```\nplumb\n```\n"));
        assert!(!is_document(b"# NCCL_DEBUG=INFO\nNCCL INFO x\n"));
    }
}
