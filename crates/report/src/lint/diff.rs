//! What a change changes, as `diff -u` shows it.

/// Lines around a change.
const AROUND: usize = 3;

/// A unified diff of two texts; empty where they are equal.
pub fn diff(name: &str, before: &str, after: &str) -> String {
    let (a, b): (Vec<&str>, Vec<&str>) =
        (before.split_inclusive('\n').collect(), after.split_inclusive('\n').collect());
    let same = |(x, y): &(&&str, &&str)| x == y;
    let start = a.iter().zip(&b).take_while(same).count();
    let end = a.iter().rev().zip(b.iter().rev()).take(a.len().min(b.len()) - start).take_while(same).count();
    let (old, new) = (&a[start..a.len() - end], &b[start..b.len() - end]);
    if old.is_empty() && new.is_empty() {
        return String::new();
    }
    let mut out = format!("--- {name}\n+++ {name}\n");
    // Changes are few and far between: each run of equal lines longer than twice the context ends a hunk.
    let mut line = Vec::new();
    let head = start.saturating_sub(AROUND);
    line.extend(a[head..start].iter().map(|it| Line::Same(it)));
    let script = align(old, new);
    line.extend(script);
    line.extend(a[a.len() - end..].iter().take(AROUND).map(|it| Line::Same(it)));
    let (mut at_old, mut at_new) = (head, head);
    for hunk in split(&line) {
        let (skipped, lines) = hunk;
        at_old += skipped;
        at_new += skipped;
        let olds = lines.iter().filter(|it| !matches!(it, Line::Added(_))).count();
        let news = lines.iter().filter(|it| !matches!(it, Line::Removed(_))).count();
        out.push_str(&format!("@@ -{},{olds} +{},{news} @@\n", at_old + 1, at_new + 1));
        for line in lines {
            let (mark, text) = match line {
                Line::Same(text) => (' ', text),
                Line::Removed(text) => ('-', text),
                Line::Added(text) => ('+', text),
            };
            out.push(mark);
            out.push_str(text);
            if !text.ends_with('\n') {
                out.push_str("\n\\ No newline at end of file\n");
            }
        }
        at_old += olds;
        at_new += news;
    }
    out
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Line<'a> {
    Same(&'a str),
    Removed(&'a str),
    Added(&'a str),
}

/// The longest common lines of two short texts; long ones are replaced as a whole.
fn align<'a>(old: &[&'a str], new: &[&'a str]) -> Vec<Line<'a>> {
    let (n, m) = (old.len(), new.len());
    if n.saturating_mul(m) > 4_000_000 {
        return old.iter().map(|it| Line::Removed(it)).chain(new.iter().map(|it| Line::Added(it))).collect();
    }
    let mut best = vec![vec![0_u32; m + 1]; n + 1];
    for i in (0..n).rev() {
        for j in (0..m).rev() {
            best[i][j] =
                if old[i] == new[j] { best[i + 1][j + 1] + 1 } else { best[i + 1][j].max(best[i][j + 1]) };
        }
    }
    let (mut i, mut j, mut out) = (0, 0, Vec::new());
    while i < n || j < m {
        if i < n && j < m && old[i] == new[j] {
            out.push(Line::Same(old[i]));
            (i, j) = (i + 1, j + 1);
        } else if i < n && (j == m || best[i + 1][j] >= best[i][j + 1]) {
            out.push(Line::Removed(old[i]));
            i += 1;
        } else {
            out.push(Line::Added(new[j]));
            j += 1;
        }
    }
    out
}

/// Cuts at long runs of equal lines: how many lines are left out before each part, and the part.
fn split<'a>(lines: &[Line<'a>]) -> Vec<(usize, Vec<Line<'a>>)> {
    let is_same = |it: &Line<'_>| matches!(it, Line::Same(_));
    let mut parts: Vec<(usize, Vec<Line<'_>>)> = vec![(0, Vec::new())];
    let mut at = 0;
    while at < lines.len() {
        let run = lines[at..].iter().take_while(|it| is_same(it)).count();
        let begun = parts.last().is_some_and(|it| it.1.iter().any(|it| !is_same(it)));
        if run > 2 * AROUND && begun && at + run < lines.len() {
            if let Some(last) = parts.last_mut() {
                last.1.extend(&lines[at..at + AROUND]);
            }
            parts.push((run - 2 * AROUND, lines[at + run - AROUND..at + run].to_vec()));
            at += run;
            continue;
        }
        if let Some(last) = parts.last_mut() {
            last.1.push(lines[at]);
        }
        at += 1;
    }
    parts
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
