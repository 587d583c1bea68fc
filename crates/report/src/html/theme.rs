//! Light and dark: the reader's setting, or what the button of the page chose.

const DARK: &str = "@media (prefers-color-scheme:dark){";

/// A style sheet in which the rules for dark screens also hold where the page was switched to dark, and not where it was switched to light.
/// With a class it holds inside elements of that class only.
pub(super) fn themed(style: &str, class: Option<&str>) -> String {
    let nested = |selector: &str, rules: &str| match class {
        Some(class) => format!("{selector} .{class}{{{rules}}}\n"),
        None => format!("{selector}{{{rules}}}\n"),
    };
    let (light, dark) = split(style);
    let light = match class {
        Some(class) => format!(".{class}{{{light}}}\n"),
        None => light,
    };
    if dark.is_empty() {
        return light;
    }
    format!(
        "{light}@media screen and (prefers-color-scheme:dark){{{}}}\n@media screen{{{}}}\n",
        nested(":root:not([data-theme=light])", &dark),
        nested(":root[data-theme=dark]", &dark)
    )
}

/// The rules for every screen, and those for dark ones.
fn split(style: &str) -> (String, String) {
    let Some((before, rest)) = style.split_once(DARK) else { return (style.to_owned(), String::new()) };
    let mut depth = 1_usize;
    let end = rest.char_indices().find(|(_, it)| {
        match it {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        depth == 0
    });
    let at = end.map_or(rest.len(), |it| it.0);
    let (dark, after) = rest.split_at(at);
    (format!("{before}{}", after.strip_prefix('}').unwrap_or(after)), dark.to_owned())
}

#[cfg(test)]
mod tests {
    use super::themed;

    #[test]
    fn dark_rules_follow_setting_and_button() {
        let style = "a{b:1}\n@media (prefers-color-scheme:dark){a{b:2}}\nc{d:3}";
        assert_eq!(
            themed(style, Some("x")),
            ".x{a{b:1}\n\nc{d:3}}\n@media screen and (prefers-color-scheme:dark){:root:not([data-theme=light]) .x{a{b:2}}\n}\n\
             @media screen{:root[data-theme=dark] .x{a{b:2}}\n}\n"
        );
        assert_eq!(themed("a{b:1}", None), "a{b:1}");
    }
}
