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
/// How much of an XML is searched for its first element.
const HEAD: usize = 1 << 14;
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

/// The machine that a comment before the system in NCCL's XML names, as the files of aws-ofi-nccl have it: ``Static pre-configured
/// topology for `p4d.24xlarge` platform type``. Several names say nothing.
pub(super) fn in_comment(text: &[u8]) -> Option<&'static Model> {
    let head = String::from_utf8_lossy(text.get(..text.len().min(HEAD)).unwrap_or_default());
    let (before, _) = head.split_once("<system")?;
    let (_, comment) = before.split_once("<!--")?;
    let words = comment.split(|it: char| !(it.is_ascii_alphanumeric() || ".-_".contains(it)));
    let mut found =
        words.filter_map(|it| catalogue::find(it.trim_matches('.'))).filter(|it| it.instance.is_some());
    let first = found.next()?;
    found.all(|it| it == first).then_some(first)
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
    use super::{in_comment, is_document, read};

    #[test]
    fn a_comment_before_the_system_names_the_machine() {
        let name = |text: &str| in_comment(text.as_bytes()).map(|it| it.name);
        let comment =
            "<!--\n Static topology for `p4d.24xlarge` platform type, used on `p4d.24xlarge`.\n-->\n";
        assert_eq!(name(&format!("{comment}<system version=\"1\"/>")), Some("p4d.24xlarge"));
        assert_eq!(name(comment), None);
        assert_eq!(name("<!-- p4d.24xlarge and p5.48xlarge --><system/>"), None);
        assert_eq!(name("<system/><!-- p4d.24xlarge -->"), None);
    }

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
