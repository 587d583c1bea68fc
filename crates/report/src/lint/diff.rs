//! A change as `diff -u` shows it.

use similar::TextDiff;

/// A unified diff of two texts; empty where they are equal.
pub fn diff(name: &str, before: &str, after: &str) -> String {
    TextDiff::from_lines(before, after).unified_diff().header(name, name).to_string()
}

#[cfg(test)]
mod tests {
    use super::diff;

    #[test]
    fn a_changed_line_stands_in_its_context() {
        let text = (1..=12).map(|it| format!("line {it}")).collect::<Vec<_>>().join("\n") + "\n";
        let after = text.replace("line 6\n", "line six\n");
        let expected = "--- f\n+++ f\n@@ -3,7 +3,7 @@\n line 3\n line 4\n line 5\n-line 6\n+line six\n line 7\n line 8\n line 9\n";
        assert_eq!(diff("f", &text, &after), expected);
    }

    #[test]
    fn distant_changes_are_two_hunks() {
        let text = (1..=40).map(|it: u32| it.to_string()).collect::<Vec<_>>().join("\n") + "\n";
        let after = text.replace("\n5\n", "\nfive\n").replace("\n30\n", "\n");
        let shown = diff("f", &text, &after);
        assert_eq!(shown.matches("@@ -").count(), 2, "{shown}");
        assert!(shown.contains("@@ -27,7 +27,6 @@"), "{shown}");
    }

    #[test]
    fn equal_texts_have_none() {
        assert_eq!(diff("f", "a\nb", "a\nb"), "");
        assert!(diff("f", "", "a\n").contains("+a"));
        assert!(diff("f", "a", "b").contains("No newline"));
    }
}
