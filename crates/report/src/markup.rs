//! Texts inside HTML and SVG.

use crate::text::is_unprintable;

/// A text that means nothing to HTML and XML, as text and as the value of an attribute. Line ends stay; other control characters, what XML
/// cannot hold and what turns the direction of writing are left out.
pub(crate) fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for it in text.chars() {
        match it {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            '\n' => safe.push('\n'),
            '\t' => safe.push(' '),
            '\u{fffe}' | '\u{ffff}' => {}
            it if is_unprintable(it) => {}
            it => safe.push(it),
        }
    }
    safe
}
