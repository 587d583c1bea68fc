//! Parts of sentences that several rules write.

/// `rank 3`, `ranks 1, 2 and 5 more`
pub(crate) fn list_of_ranks(ranks: &[u32]) -> String {
    let shown: Vec<String> = ranks.iter().take(8).map(u32::to_string).collect();
    let more = if ranks.len() > 8 { format!(" and {} more", ranks.len() - 8) } else { String::new() };
    format!("{} {}{more}", if ranks.len() == 1 { "rank" } else { "ranks" }, shown.join(", "))
}

/// The text with its first letter in upper case.
pub(crate) fn capitalised(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |it| it.to_uppercase().chain(letters).collect())
}

/// A quoted text, at most 160 characters long.
pub(crate) fn shorten(text: &str) -> String {
    if text.chars().count() <= 160 {
        text.to_owned()
    } else {
        format!("{}...", text.chars().take(157).collect::<String>())
    }
}

#[cfg(test)]
mod tests {
    use super::list_of_ranks;

    #[test]
    fn lists_ranks() {
        assert_eq!(list_of_ranks(&[3]), "rank 3");
        assert_eq!(list_of_ranks(&[1, 2]), "ranks 1, 2");
        assert_eq!(list_of_ranks(&(0..10).collect::<Vec<_>>()), "ranks 0, 1, 2, 3, 4, 5, 6, 7 and 2 more");
    }
}
