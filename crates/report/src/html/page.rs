//! The frame of every page: head, policy, verdict, sections, data.

use std::io::{self, Write};

use rules::Severity;
use sha2::{Digest as _, Sha256};

use super::element::Html;
use super::kept::{Kept, Texts, mark, shielded};
use super::parts;
use super::theme::themed;
use crate::markup::escaped;

const STYLE: &str = concat!(include_str!("page.css"), include_str!("views.css"));
const SCRIPT: &str = concat!(include_str!("page.js"), include_str!("devices.js"), "drawings(document);\n");

/// How the answer is, for its colour. A word beside it always says the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Tone {
    /// Nothing is wrong.
    Good,
    /// Something could be better.
    Warning,
    /// Something is wrong.
    Bad,
    /// Neither: an answer to a question.
    #[default]
    Plain,
    /// It could not be decided.
    Unknown,
}

impl Tone {
    /// Its class in the style of the page.
    pub fn class(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Warning => "warning",
            Self::Bad => "bad",
            Self::Plain => "plain",
            Self::Unknown => "unknown",
        }
    }
}

impl From<Severity> for Tone {
    fn from(it: Severity) -> Self {
        match it {
            Severity::Error => Self::Bad,
            Severity::Warning => Self::Warning,
            Severity::Info => Self::Plain,
        }
    }
}

/// A page of a command.
#[derive(Debug, Default)]
pub struct Page {
    /// `doctor`.
    pub command: &'static str,
    /// The schema of the JSON: `plumb.doctor/2`.
    pub schema: String,
    /// What the answer is about, for the title of the window: `plumb doctor: 16 ranks on 2 nodes`.
    pub title: String,
    /// One word: `failed`, `ok`, `fit`. May be empty.
    pub word: String,
    /// The colour of the word.
    pub tone: Tone,
    /// The answer in a sentence.
    pub verdict: String,
    /// Lines below it: what it is about, how far it reaches.
    pub about: Vec<String>,
    /// Markdown for a ticket, which a button copies; without names and addresses.
    pub ticket: Option<String>,
    /// The severity of the worst finding: decides the exit code when the page is read again.
    pub worst: Option<Severity>,
    /// Whether the command could not decide: exit code 2 when the page is read again.
    pub undecided: bool,
    sections: Vec<(&'static str, String)>,
    body: Html,
}

impl Page {
    /// An empty page.
    pub fn new(command: &'static str, schema: &str) -> Self {
        Self { command, schema: schema.to_owned(), ..Self::default() }
    }

    /// Adds a section with a heading, which the navigation lists.
    pub fn section(&mut self, id: &'static str, title: &str, inner: impl FnOnce(&mut Html)) {
        self.sections.push((id, title.to_owned()));
        let heading = format!("{id}-heading");
        self.body.region(title, "section");
        self.body.put("section", &[("id", id), ("aria-labelledby", &heading)], |html| {
            html.put("h2", &[("id", &heading)], |html| html.words(title));
            inner(html);
        });
    }

    /// Writes the whole file.
    pub(super) fn write(&self, json: &str, texts: Texts, out: &mut impl Write) -> io::Result<()> {
        let mut style = themed(STYLE, None);
        for (class, of_picture) in self.body.styles() {
            style.push_str(&themed(of_picture, Some(class)));
        }
        let kept = Kept::new(self.command, &self.schema, self.worst, self.undecided, texts, json);
        let kept = serde_json::to_string(&kept)?;
        let policy = format!(
            "default-src 'none'; style-src '{}'; script-src '{}'; img-src data:; base-uri 'none'; form-action 'none'",
            hash(&style),
            hash(SCRIPT)
        );
        let title = if self.title.is_empty() { &self.verdict } else { &self.title }.replace('`', "");
        writeln!(out, "<!doctype html>\n{}\n<head>", mark(self.command, &self.schema))?;
        writeln!(out, "<meta charset=\"utf-8\">")?;
        writeln!(out, "<meta http-equiv=\"Content-Security-Policy\" content=\"{policy}\">")?;
        writeln!(out, "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">")?;
        writeln!(out, "<meta name=\"generator\" content=\"plumb {}\">", env!("CARGO_PKG_VERSION"))?;
        writeln!(out, "<meta name=\"color-scheme\" content=\"light dark\">")?;
        writeln!(out, "<title>plumb {}: {}</title>", self.command, escaped(&title))?;
        writeln!(out, "<link rel=\"icon\" href=\"data:,\">")?;
        writeln!(out, "<style>{style}</style>\n</head>\n<body>")?;
        out.write_all(self.frame().as_str().as_bytes())?;
        writeln!(
            out,
            "<script type=\"application/json\" id=\"plumb-page\">\n{}</script>\n\
             <script type=\"application/json\" id=\"plumb-report\">\n{}</script>\n\
             <script>{SCRIPT}</script>\n</body>\n</html>",
            shielded(&kept),
            shielded(json)
        )
    }

    /// What is shown.
    fn frame(&self) -> Html {
        let mut html = Html::default();
        html.put("a", &[("class", "skip"), ("href", "#answer")], |html| html.words("To the answer"));
        html.put("header", &[("class", "bar")], |html| {
            html.put("p", &[("class", "brand")], |html| {
                html.line("b", "", "plumb");
                html.words(" ");
                html.words(self.command);
            });
            html.put("nav", &[("aria-label", "Sections")], |html| {
                html.put("ul", &[], |html| {
                    for (id, title) in &self.sections {
                        html.put("li", &[], |html| html.link(&format!("#{id}"), title));
                    }
                });
            });
            let theme = [("type", "button"), ("id", "theme"), ("hidden", "")];
            html.put("button", &theme, |html| html.words("Dark"));
        });
        html.put("main", &[("id", "answer"), ("tabindex", "-1")], |html| {
            html.put("div", &[("class", &format!("verdict {}", self.tone.class()))], |html| {
                html.put("h1", &[], |html| {
                    if !self.word.is_empty() {
                        html.line("span", "word", &self.word);
                        html.words(" ");
                    }
                    html.prose(&self.verdict);
                });
                for it in &self.about {
                    html.put("p", &[], |html| html.prose(it));
                }
                if let Some(ticket) = &self.ticket {
                    parts::ticket(html, ticket);
                }
            });
            html.append(&self.body);
        });
        html.put("footer", &[], |html| {
            html.put("p", &[], |html| {
                html.words("Nothing in this file is loaded from elsewhere. It holds the answer as JSON (");
                html.line("code", "", &self.schema);
                html.words("); ");
                html.line("code", "", &format!("plumb {} FILE.html", self.command));
                html.words(" reads it again.");
            });
        });
        html.put("p", &[("id", "said"), ("role", "status"), ("class", "unseen")], |_| {});
        html
    }
}

/// The hash of an inline style or script in a policy.
fn hash(text: &str) -> String {
    format!("sha256-{}", base64(&Sha256::digest(text.as_bytes())))
}

fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for three in bytes.chunks(3) {
        let bits =
            (0..3).fold(0_usize, |bits, at| bits << 8 | usize::from(three.get(at).copied().unwrap_or(0)));
        for at in 0..4 {
            let letter = if at <= three.len() { LETTERS[bits >> (18 - 6 * at) & 63] } else { b'=' };
            text.push(char::from(letter));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{SCRIPT, STYLE, base64, hash};

    #[test]
    fn hashes_are_those_of_browsers() {
        assert_eq!([base64(b""), base64(b"f"), base64(b"fo"), base64(b"foo")], ["", "Zg==", "Zm8=", "Zm9v"]);
        // The example of the specification of CSP.
        assert_eq!(hash("doSomething();"), "sha256-RFWPLDbv2BY+rCkDzsE+0fr8ylGr2R2faWMhq4lfEQc=");
    }

    #[test]
    fn style_and_script_cannot_end_their_element() {
        for text in [STYLE, SCRIPT] {
            assert!(!text.contains("</") && !text.contains("<!--") && !text.contains('\r'));
        }
        for call in ["fetch(", "XMLHttpRequest", "WebSocket", "import(", "innerHTML", "eval(", "http"] {
            assert!(!SCRIPT.contains(call), "{call}");
        }
    }
}
