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

    /// Relative luminance of `#1d2733` or `#fff`, as WCAG has it.
    fn luminance(colour: &str) -> f64 {
        let digits: String = match colour.len() {
            3 => colour.chars().flat_map(|it| [it, it]).collect(),
            _ => colour.to_owned(),
        };
        let part = |at: usize| {
            let value = f64::from(u8::from_str_radix(&digits[at..at + 2], 16).unwrap()) / 255.0;
            if value <= 0.03928 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) }
        };
        0.2126 * part(0) + 0.7152 * part(2) + 0.0722 * part(4)
    }

    fn variable<'a>(rules: &'a str, name: &str) -> Option<&'a str> {
        rules.split(&format!("--{name}:#")).nth(1)?.split([';', '}']).next()
    }

    /// Variables are for both modes; a fixed colour is one of a ground that has its own text on it.
    #[test]
    fn texts_can_be_read_in_light_and_dark() {
        let styles = [
            include_str!("page.css"),
            include_str!("chart/chart.css"),
            include_str!("doctor/map.css"),
            include_str!("doctor/course/course.css"),
            include_str!("../validate/style.css"),
            include_str!("../bench/style.css"),
            include_str!("../predict/timeline.css"),
            include_str!("../topo/svg/style.css"),
        ];
        for style in styles {
            let (light, dark) = super::split(style);
            for rules in [&light, &dark] {
                let paper = luminance(variable(rules, "paper").unwrap());
                for name in ["ink", "soft", "bad", "warned", "first", "good", "warning", "link"] {
                    let Some(colour) = variable(rules, name) else { continue };
                    let it = luminance(colour);
                    let contrast = (it.max(paper) + 0.05) / (it.min(paper) + 0.05);
                    assert!(contrast >= 4.5, "--{name}:#{colour} has {contrast:.1}: {rules}");
                }
            }
            for rule in style.split('}').filter(|it| it.contains("fill:#")) {
                let selector = rule.split('{').next().unwrap().trim();
                let is_ground = |it: &str| {
                    let name = it.trim_start_matches('.').trim_end_matches('t');
                    name == "lossy" || name.strip_prefix('s').is_some_and(|it| it.parse::<u8>().is_ok())
                };
                assert!(selector.split(',').all(is_ground), "{selector} has one colour in both modes");
            }
        }
    }

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
