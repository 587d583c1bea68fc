//! What a page keeps of its answer, so that the command can read the page again.

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// The schema of [`Kept`].
const PAGE: &str = "plumb.page/1";
/// The schemas of answers whose pages this release reads. A page of an older one is added here as long as its text can be shown.
const SCHEMAS: &[&str] = &[
    "plumb.doctor/2",
    "plumb.env/1",
    "plumb.expect/1",
    "plumb.lint/1",
    "plumb.node/1",
    "plumb.nodes/1",
    "plumb.topo/1",
    "plumb.decide/1",
    "plumb.bench/1",
    "plumb.bench-compare/1",
    "plumb.validate/1",
    "plumb.predict/1",
    "plumb.plan/1",
    "plumb.compare/1",
];
/// How a page begins, up to the name of its command.
const MARK: &str = "<html lang=\"en\" data-plumb=\"";

/// The text answers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Texts {
    /// For 80 columns.
    pub(super) narrow: String,
    /// For 100 columns.
    pub(super) short: String,
    /// The whole answer.
    pub(super) verbose: String,
}

impl Texts {
    /// Of the texts and the JSON beside them.
    fn checksum(&self, json: &str) -> String {
        let Self { narrow, short, verbose } = self;
        let all = [narrow, short, verbose, json].iter().fold(Sha256::new(), |hash, it| {
            hash.chain_update((it.len() as u64).to_le_bytes()).chain_update(it.as_bytes())
        });
        let half = all.finalize().first_chunk().copied().unwrap_or_default();
        format!("{:032x}", u128::from_be_bytes(half))
    }
}

/// The answer in a page.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {
    /// `plumb.page/1`.
    schema: String,
    /// The command that wrote it.
    pub command: String,
    /// The schema of its JSON.
    pub report: String,
    /// The severity of the worst finding: `error`, `warning` or `info`.
    pub worst: Option<String>,
    /// Whether the command could not decide.
    pub undecided: bool,
    texts: Texts,
    /// A checksum of the JSON and the texts, against accident; none in pages of releases that wrote none.
    #[serde(default)]
    checksum: Option<String>,
    /// The JSON, byte for byte.
    #[serde(skip)]
    pub json: String,
}

/// Why a page cannot be read again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unreadable {
    /// Another release of plumb wrote it, in a schema that this one does not know.
    Newer(String),
    /// A part is missing or was changed.
    Mangled(&'static str),
}

impl std::fmt::Display for Unreadable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Newer(schema) => {
                write!(
                    f,
                    "is a report in the schema {schema}, which this release of plumb cannot read: use a newer one"
                )
            }
            Self::Mangled(what) => write!(f, "is a report of plumb, but {what}: it was cut off or changed"),
        }
    }
}

impl Kept {
    pub(super) fn new(
        command: &str,
        report: &str,
        worst: Option<rules::Severity>,
        undecided: bool,
        texts: Texts,
        json: &str,
    ) -> Self {
        Self {
            schema: PAGE.to_owned(),
            command: command.to_owned(),
            report: report.to_owned(),
            worst: worst.map(|it| it.name().to_owned()),
            undecided,
            checksum: Some(texts.checksum(json)),
            texts,
            json: json.to_owned(),
        }
    }

    /// Reads a page.
    pub fn read(page: &str) -> Result<Self, Unreadable> {
        let mangled = Unreadable::Mangled;
        let kept = block(page, "plumb-page").ok_or(mangled("its summary is missing"))?;
        let value: serde_json::Value =
            serde_json::from_str(&kept).map_err(|_| mangled("its summary cannot be read"))?;
        let schema = value.get("schema").and_then(|it| it.as_str()).unwrap_or_default();
        if schema != PAGE {
            return Err(match schema {
                "" => mangled("its summary cannot be read"),
                other => Unreadable::Newer(other.to_owned()),
            });
        }
        let mut kept: Self =
            serde_json::from_value(value).map_err(|_| mangled("its summary cannot be read"))?;
        if !SCHEMAS.contains(&&*kept.report) {
            return Err(Unreadable::Newer(kept.report));
        }
        kept.json = block(page, "plumb-report").ok_or(mangled("its JSON is missing"))?;
        if serde_json::from_str::<serde::de::IgnoredAny>(&kept.json).is_err() {
            return Err(mangled("its JSON cannot be read"));
        }
        let found = kept.texts.checksum(&kept.json);
        if kept.checksum.as_ref().is_some_and(|it| *it != found) {
            return Err(mangled("its JSON or its text is not what was written"));
        }
        Ok(kept)
    }

    /// The text answer for a terminal of this width.
    pub fn text(&self, width: usize, verbose: bool) -> &str {
        match (verbose, width) {
            (true, _) => &self.texts.verbose,
            (false, ..100) => &self.texts.narrow,
            (false, _) => &self.texts.short,
        }
    }
}

/// What stands in the place of the command in plumb's page for browsers (`tools/page`), which holds no answer.
const BROWSER: &str = "browser";
/// What is reported about that page where it is given as an input; what the input should be follows.
pub const BROWSER_PAGE: &str = "is plumb's page for browsers";

/// Whether a text begins as plumb's page for browsers does.
pub fn is_browser_page(head: &[u8]) -> bool {
    marked(head).as_deref() == Some(BROWSER)
}

/// Whether a text begins as a report of plumb does; the first 256 bytes are enough.
pub fn is_page(head: &[u8]) -> bool {
    command_of(head).is_some()
}

/// The command whose page begins so.
pub fn command_of(head: &[u8]) -> Option<String> {
    marked(head).filter(|it| it != BROWSER)
}

/// What the first tag says.
fn marked(head: &[u8]) -> Option<String> {
    let head = head.get(..head.len().min(1024))?;
    let head = String::from_utf8_lossy(head);
    let rest = head.get(head.find(MARK)? + MARK.len()..)?;
    let name: String = rest.chars().take_while(char::is_ascii_lowercase).collect();
    (!name.is_empty()).then_some(name)
}

/// The first tag of a page.
pub(super) fn mark(command: &str, report: &str) -> String {
    format!("{MARK}{command} {report}\">")
}

/// JSON for an element `script`, which nothing in it can end.
pub(super) fn shielded(json: &str) -> String {
    json.replace('<', "\\u003c")
}

/// The content of a data block, byte for byte as before [`shielded`].
fn block(page: &str, id: &str) -> Option<String> {
    let start = page.find(&format!("<script type=\"application/json\" id=\"{id}\">"))?;
    let rest = page.get(start..)?;
    let rest = rest.get(rest.find('>')? + 1..)?;
    let inner = rest.get(..rest.find("</script>")?)?;
    let inner = inner.strip_prefix('\n').unwrap_or(inner);
    let mut json = String::with_capacity(inner.len());
    let mut left = inner;
    while let Some(at) = left.find('\\') {
        json.push_str(left.get(..at)?);
        left = left.get(at..)?;
        if let Some(after) = left.strip_prefix("\\u003c") {
            json.push('<');
            left = after;
        } else {
            // Both characters of an escape, so that a backslash in a text is not taken for one.
            let length = 1 + left.chars().nth(1).map_or(0, char::len_utf8);
            json.push_str(left.get(..length)?);
            left = left.get(length..)?;
        }
    }
    json.push_str(left);
    Some(json)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Kept, Texts, Unreadable, block, command_of, is_browser_page, is_page, mark, shielded};

    fn page(report: &str, json: &str) -> String {
        let kept = Kept::new("doctor", report, None, false, Texts::default(), json);
        let kept = shielded(&serde_json::to_string(&kept).unwrap());
        let tag =
            |id: &str, json: &str| format!("<script type=\"application/json\" id=\"{id}\">\n{json}</script>");
        format!(
            "{}{}{}",
            mark("doctor", report),
            tag("plumb-page", &kept),
            tag("plumb-report", &shielded(json))
        )
    }

    #[test]
    fn a_newer_or_broken_page_says_so() {
        let good = page("plumb.doctor/2", "{\"a\": 1}\n");
        assert_eq!(Kept::read(&good).unwrap().json, "{\"a\": 1}\n");
        assert_eq!(
            Kept::read(&page("plumb.doctor/3", "{}")),
            Err(Unreadable::Newer("plumb.doctor/3".to_owned()))
        );
        for end in 0..good.len() {
            assert!(matches!(Kept::read(&good[..end]), Err(Unreadable::Mangled(_))), "{end}");
        }
        assert!(matches!(Kept::read(&page("plumb.doctor/2", "{")), Err(Unreadable::Mangled(_))));
        assert_eq!(
            Kept::read(&good.replace("\"a\": 1", "\"a\": 2")),
            Err(Unreadable::Mangled("its JSON or its text is not what was written"))
        );
        assert!(Kept::read(&good.replace("\"short\":\"\"", "\"short\":\"ok\"")).is_err());
        assert_eq!(command_of(good.as_bytes()).as_deref(), Some("doctor"));
        assert_eq!(command_of(b"<!doctype html>\n<html lang=\"en\">"), None);
    }

    #[test]
    fn the_page_for_browsers_is_not_a_report() {
        let page = include_bytes!("../../../../tools/page/ui/page.html");
        assert!(is_browser_page(page) && !is_page(page) && command_of(page).is_none());
        assert!(!is_browser_page(mark("doctor", "plumb.doctor/2").as_bytes()));
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn any_json_comes_back(texts in prop::collection::vec("(?s:.{0,20})|[<\\\\u03c/script!-]{0,20}", 0..4)) {
            let mut json = Vec::new();
            crate::json::write_json(&texts, &mut json).unwrap();
            let json = String::from_utf8(json).unwrap();
            let page = page("plumb.doctor/2", &json);
            prop_assert!(!shielded(&json).contains('<'));
            prop_assert_eq!(block(&page, "plumb-report"), Some(json.clone()));
            prop_assert_eq!(Kept::read(&page).unwrap().json, json);
        }
    }
}
