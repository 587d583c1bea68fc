//! The lines that the program `whoami` prints.

/// All ranks have printed theirs, and all have the same token.
#[track_caller]
pub(crate) fn check(output: &[u8], ranks: usize, launcher: &str, rendezvous: &str) {
    let text = String::from_utf8_lossy(output);
    let mut lines: Vec<_> = text.lines().filter(|it| it.starts_with("rank ")).collect();
    lines.sort_by_key(|it| it.split(' ').nth(1).and_then(|it| it.parse::<usize>().ok()));
    assert_eq!(lines.len(), ranks, "{text}");
    let token = lines[0].rsplit(' ').next().expect("a token");
    for (rank, line) in lines.iter().enumerate() {
        assert!(line.starts_with(&format!("rank {rank} of {ranks}, ")), "{text}");
        assert!(line.ends_with(&format!(", by {launcher}, over {rendezvous}, token {token}")), "{text}");
    }
}
