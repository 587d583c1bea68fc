//! HTML that is escaped as it is written.

use std::collections::{BTreeMap, BTreeSet};

use crate::markup::escaped;
use crate::topo::svg::canvas::Picture;

/// The markup of a part of a page. There is no way to put a string into it that is not escaped.
#[derive(Debug, Default)]
pub struct Html {
    text: String,
    /// The styles of the pictures in it, by the class they hold for.
    styles: BTreeMap<&'static str, &'static str>,
    /// How many pictures there are, for their ids.
    pictures: usize,
    /// The names of regions, which a screen reader lists.
    regions: BTreeSet<String>,
    /// Inside how many elements whose text is copied as it is.
    verbatim: usize,
}

/// The name and the value of an attribute.
type Attribute<'a> = (&'static str, &'a str);

impl Html {
    /// An element with what is inside.
    pub fn put(&mut self, tag: &'static str, attributes: &[Attribute<'_>], inner: impl FnOnce(&mut Self)) {
        self.open(tag, attributes);
        let verbatim = usize::from(is_verbatim(tag));
        self.verbatim += verbatim;
        inner(self);
        self.verbatim -= verbatim;
        self.text.push_str("</");
        self.text.push_str(tag);
        self.text.push('>');
        if is_block(tag) {
            self.text.push('\n');
        }
    }

    /// An element of a class with a text.
    pub fn line(&mut self, tag: &'static str, class: &str, text: &str) {
        let class = [("class", class)];
        self.put(tag, if class[0].1.is_empty() { &[] } else { &class }, |html| html.words(text));
    }

    /// An element that has no content, such as `input`.
    pub fn open(&mut self, tag: &'static str, attributes: &[Attribute<'_>]) {
        self.text.push('<');
        self.text.push_str(tag);
        for (name, value) in attributes {
            debug_assert!(
                *name != "style" && !name.starts_with("on"),
                "the policy of the page forbids {name}"
            );
            self.text.push(' ');
            self.text.push_str(name);
            self.text.push_str("=\"");
            self.text.push_str(&escaped(value));
            self.text.push('"');
        }
        self.text.push('>');
    }

    /// A text. No line ends between a number and its unit.
    pub fn words(&mut self, text: &str) {
        let text = escaped(text);
        if self.verbatim > 0 {
            self.text.push_str(&text);
            return;
        }
        let mut rest = &*text;
        while let Some((number, after)) = rest.split_once(' ') {
            let digit = number.ends_with(|it: char| it.is_ascii_digit());
            self.text.push_str(number);
            self.text.push(if digit && begins_with_unit(after) { '\u{a0}' } else { ' ' });
            rest = after;
        }
        self.text.push_str(rest);
    }

    /// A text in which what stands between backticks is code. A backtick without a second one is a backtick.
    pub fn prose(&mut self, text: &str) {
        let mut rest = text;
        while let Some((words, (code, after))) =
            rest.split_once('`').and_then(|(words, it)| Some((words, it.split_once('`')?)))
        {
            self.words(words);
            if !code.is_empty() {
                self.line("code", "", code);
            }
            rest = after;
        }
        self.words(rest);
    }

    /// A link; only the text if the address is not one of the web or of this page.
    pub fn link(&mut self, address: &str, text: &str) {
        let web = address.starts_with("https://") || address.starts_with("http://");
        if web {
            self.put("a", &[("href", address), ("rel", "noreferrer")], |html| html.words(text));
        } else if address.starts_with('#') {
            self.put("a", &[("href", address)], |html| html.words(text));
        } else {
            self.words(text);
        }
    }

    /// The name of a region that no other has: `Leave unset`, `Leave unset: table`, `Leave unset: table 2`.
    pub(super) fn region(&mut self, name: &str, kind: &str) -> String {
        let more = (2..).map(|it| format!("{name}: {kind} {it}"));
        let mut names = [name.to_owned(), format!("{name}: {kind}")].into_iter().chain(more);
        let free = names.find(|it| !self.regions.contains(it)).unwrap_or_default();
        self.regions.insert(free.clone());
        free
    }

    /// A picture. `class` is its kind: pictures of one kind share a style.
    pub fn picture(&mut self, class: &'static str, picture: &Picture) {
        self.styles.insert(class, picture.style);
        self.pictures += 1;
        let id = format!("{class}-{}", self.pictures);
        let name = self.region(&picture.title, "picture");
        self.put(
            "div",
            &[
                ("class", &format!("picture {class}")),
                ("tabindex", "0"),
                ("role", "region"),
                ("aria-label", &name),
            ],
            |html| {
                html.text.push_str(&picture.inline(&id));
            },
        );
    }

    /// Appends what was written elsewhere.
    pub fn append(&mut self, other: &Self) {
        self.text.push_str(&other.text);
        self.styles.extend(&other.styles);
        self.regions.extend(other.regions.iter().cloned());
        self.pictures = self.pictures.max(other.pictures);
    }

    /// What was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The styles of its pictures.
    pub(super) fn styles(&self) -> &BTreeMap<&'static str, &'static str> {
        &self.styles
    }
}

/// Elements whose text is a command, a name or a quote.
fn is_verbatim(tag: &str) -> bool {
    matches!(tag, "pre" | "code")
}

fn begins_with_unit(text: &str) -> bool {
    const UNITS: [&str; 22] = [
        "%", "s", "ms", "us", "ns", "min", "h", "d", "B", "KB", "MB", "GB", "TB", "KiB", "MiB", "GiB", "TiB",
        "GB/s", "MB/s", "Gbps", "TFLOP/s", "FLOP/s",
    ];
    let end =
        text.find(|it: char| !(it.is_ascii_alphabetic() || matches!(it, '/' | '%'))).unwrap_or(text.len());
    text.get(..end).is_some_and(|it| UNITS.contains(&it))
}

fn is_block(tag: &str) -> bool {
    !matches!(tag, "a" | "b" | "code" | "span" | "button" | "strong" | "mark" | "td" | "th" | "option")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::Html;

    #[test]
    fn no_two_regions_have_one_name() {
        let mut html = Html::default();
        let names = ["a", "a", "a", "b"].map(|it| html.region(it, "table"));
        assert_eq!(names, ["a", "a: table", "a: table 2", "b"]);
    }

    #[test]
    fn units_stay_with_their_numbers() {
        let mut html = Html::default();
        html.words("5.4 GB/s, 8 % (-8 %), 3 ranks, 4 sizes, a s");
        html.line("code", "", "sleep 5 s");
        html.prose(" in 2 min `5 %`");
        assert_eq!(
            html.as_str(),
            "5.4\u{a0}GB/s, 8\u{a0}% (-8\u{a0}%), 3 ranks, 4 sizes, a s<code>sleep 5 s</code> in 2\u{a0}min <code>5 %</code>"
        );
    }

    #[test]
    fn only_addresses_of_the_web_are_links() {
        for bad in ["javascript:alert(1)", "data:text/html,x", "file:///etc", "//host", "x"] {
            let mut html = Html::default();
            html.link(bad, "text");
            assert_eq!(html.as_str(), "text", "{bad}");
        }
        let mut html = Html::default();
        html.link("https://a/\"><script>", "t");
        assert_eq!(html.as_str(), "<a href=\"https://a/&quot;&gt;&lt;script&gt;\" rel=\"noreferrer\">t</a>");
    }

    #[test]
    fn what_stands_between_backticks_is_code() {
        let shown = |text: &str| {
            let mut html = Html::default();
            html.prose(text);
            html.as_str().to_owned()
        };
        assert_eq!(shown("set `a` and `b`."), "set <code>a</code> and <code>b</code>.");
        assert_eq!(shown("bash: `x' and <y>"), "bash: `x&#39; and &lt;y&gt;");
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn any_text_is_text(text in "(?s:.{0,40})|[<>&\"'/a-z!`=-]{0,40}") {
            let mut html = Html::default();
            html.words(&text);
            prop_assert!(!html.as_str().contains(['<', '>', '"', '\'']));
            let mut html = Html::default();
            html.open("p", &[("title", &text)]);
            html.prose(&text);
            // One element, and those that `prose` makes itself.
            let rest = html.as_str().replace("<code>", "").replace("</code>", "");
            prop_assert_eq!(rest.matches('<').count(), 1);
            prop_assert_eq!(rest.matches('"').count(), 2);
            // It is XML too: what a parser reads is what was written.
            let whole = format!("{}</p>", html.as_str());
            let read = roxmltree::Document::parse(&whole).unwrap();
            let shown: String = read.root_element().descendants().filter_map(|it| it.text().filter(|_| it.is_text())).collect();
            let (paired, last) = text.rsplit_once('`').filter(|_| text.matches('`').count() % 2 == 1).unwrap_or((&text, ""));
            let lone = if paired.len() < text.len() { "`" } else { "" };
            let want = format!("{}{lone}{last}", paired.replace('`', ""));
            let want: String = want.chars().map(|it| if it == '\t' { ' ' } else { it })
                .filter(|it| *it == '\n' || !(crate::text::is_unprintable(*it) || matches!(it, '\u{fffe}' | '\u{ffff}'))).collect();
            // A unit stays with its number by another space.
            let plain = |it: &str| it.replace('\u{a0}', " ");
            prop_assert_eq!(plain(&shown), plain(&want));
        }
    }
}
