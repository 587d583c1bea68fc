//! Host lists of Slurm.
//!
//! - `n1,n2` is n1 and n2.
//! - `n[1-3,7]` is n1, n2, n3 and n7; `n[08-10]` keeps the zeros: n08, n09, n10.
//! - `rack[1-2]n[1-2]-ib` runs the last bracket fastest: rack1n1-ib, rack1n2-ib, rack2n1-ib, rack2n2-ib.

/// A piece of a host name.
enum Piece {
    Text(String),
    Numbers(Vec<NumberRange>),
}

/// Numbers from `low` to `high`, padded with zeros to `width`.
struct NumberRange {
    low: u64,
    high: u64,
    width: usize,
}

/// The host names of a list, in order. Fails with a reason if the list is malformed or has more than `limit` names.
pub fn expand_hostlist(list: &str, limit: usize) -> Result<Vec<String>, String> {
    let mut hosts = Vec::new();
    for element in elements(list)? {
        let pieces = pieces(element)?;
        let room = limit - hosts.len();
        let count = pieces.iter().try_fold(1_u64, |count, it| match it {
            Piece::Text(_) => Some(count),
            Piece::Numbers(ranges) => ranges
                .iter()
                .try_fold(0_u64, |sum, it| sum.checked_add((it.high - it.low).checked_add(1)?))?
                .checked_mul(count),
        });
        if count.is_none_or(|it| it > room as u64) {
            return Err(format!("more than {limit} hosts"));
        }
        let mut names = vec![String::new()];
        for piece in &pieces {
            names = match piece {
                Piece::Text(text) => names.into_iter().map(|it| it + text).collect(),
                Piece::Numbers(ranges) => names.iter().flat_map(|it| numbered(it, ranges)).collect(),
            };
        }
        if names.iter().any(|it| it.is_empty() || it.len() > 253) {
            return Err("a host name is empty or too long".to_owned());
        }
        hosts.append(&mut names);
    }
    Ok(hosts)
}

fn numbered<'a>(stem: &'a str, ranges: &'a [NumberRange]) -> impl Iterator<Item = String> + 'a {
    ranges.iter().flat_map(move |&NumberRange { low, high, width }| {
        (low..=high).map(move |it| format!("{stem}{it:0width$}"))
    })
}

/// Cuts at the commas outside brackets.
fn elements(list: &str) -> Result<Vec<&str>, String> {
    let (mut found, mut begin, mut inside) = (Vec::new(), 0, false);
    for (at, byte) in list.bytes().enumerate() {
        match byte {
            b'[' if inside => return Err("a bracket inside a bracket".to_owned()),
            b'[' => inside = true,
            b']' if !inside => return Err("a bracket is closed that was not opened".to_owned()),
            b']' => inside = false,
            b',' if !inside => {
                found.push(&list[begin..at]);
                begin = at + 1;
            }
            _ => {}
        }
    }
    if inside {
        return Err("a bracket is not closed".to_owned());
    }
    found.push(&list[begin..]);
    Ok(found)
}

fn pieces(element: &str) -> Result<Vec<Piece>, String> {
    let mut pieces = Vec::new();
    let mut rest = element;
    while let Some((text, after)) = rest.split_once('[') {
        let (ranges, after) = after.split_once(']').ok_or("a bracket is not closed")?;
        pieces.push(Piece::Text(text.to_owned()));
        pieces.push(Piece::Numbers(ranges.split(',').map(range).collect::<Result<_, _>>()?));
        rest = after;
    }
    if rest.bytes().chain(element.bytes()).any(|it| it.is_ascii_whitespace() || it.is_ascii_control()) {
        return Err("a host name contains a space or a control character".to_owned());
    }
    pieces.push(Piece::Text(rest.to_owned()));
    Ok(pieces)
}

fn range(text: &str) -> Result<NumberRange, String> {
    let number = |it: &str| match it.parse::<u64>() {
        Ok(number) if it.len() <= 18 && it.bytes().all(|it| it.is_ascii_digit()) => Ok(number),
        _ => Err(format!("{it:?} is not a number")),
    };
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let range = NumberRange { low: number(first)?, high: number(last)?, width: first.len() };
    if range.high < range.low { Err(format!("{text:?} runs backwards")) } else { Ok(range) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(list: &str, hosts: &str) {
        assert_eq!(expand_hostlist(list, 100).expect("a list").join(" "), hosts);
    }

    #[test]
    fn lists() {
        check("n1", "n1");
        check("n1,n2", "n1 n2");
        check("fnode[1-4,7],x", "fnode1 fnode2 fnode3 fnode4 fnode7 x");
        check("n[08-10]", "n08 n09 n10");
        check("n[8-10]", "n8 n9 n10");
        check("n[001,02,3]", "n001 n02 n3");
        check("rack[1-2]n[1-2]-ib", "rack1n1-ib rack1n2-ib rack2n1-ib rack2n2-ib");
        check("[1-2].example", "1.example 2.example");
        check("ip-10-0-0-[9-10],gpu-st-p5-[1]", "ip-10-0-0-9 ip-10-0-0-10 gpu-st-p5-1");
    }

    #[test]
    fn invalid_lists() {
        for wrong in [
            "", ",", "n[", "n]", "n[]", "n[1", "n[[1]]", "n[2-1]", "n[a-b]", "n[1-]", "n[-1]", "n[1-2-3]",
            "n 1",
        ] {
            assert!(expand_hostlist(wrong, 100).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_is_too_long() {
        assert!(expand_hostlist("n[1-100]", 100).is_ok());
        assert!(expand_hostlist("n[1-101]", 100).is_err());
        assert!(expand_hostlist("n[1-99],a,b", 100).is_err());
        assert!(expand_hostlist("n[0-999999999999999999]", 1 << 16).is_err());
        assert!(expand_hostlist(&"[0-999999999999999999]".repeat(50), 1 << 16).is_err());
    }

    proptest! {
        #[test]
        fn any_text_ends_within_the_limit(list in "[a-c0-9,\\[\\]-]{0,60}|.{0,60}", limit in 0_usize..50) {
            if let Ok(hosts) = expand_hostlist(&list, limit) {
                prop_assert!(hosts.len() <= limit);
            }
        }

        #[test]
        fn what_is_written_out_is_itself(hosts in proptest::collection::vec("[a-z]{1,5}[0-9]{0,3}", 1..20)) {
            prop_assert_eq!(expand_hostlist(&hosts.join(","), 100), Ok(hosts));
        }

        #[test]
        fn a_range_counts(low in 0_u64..200, more in 0_u64..50, width in 1_usize..6) {
            let hosts = expand_hostlist(&format!("n[{low:0width$}-{:0width$}]", low + more), 1000).expect("a list");
            prop_assert_eq!(hosts.len() as u64, more + 1);
            prop_assert_eq!(&hosts[0], &format!("n{low:0width$}"));
        }
    }
}
