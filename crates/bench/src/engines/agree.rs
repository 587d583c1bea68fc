//! Ranks that were started by hand, each with its own arguments.

use collective::Communicator;

use crate::failure::{Cause, Failure};

/// Characters of a flag that a message shows.
const LONGEST: usize = 60;

/// Makes sure that all ranks have the same flags, before they wait for each other in vain.
pub fn agree(control: &mut Communicator, flags: &[String]) -> Result<(), Failure> {
    let all = control.share(flags.join("\n").as_bytes())?;
    let Some((rank, flag, rank0)) = different(&all) else { return Ok(()) };
    let host = control.members().iter().find(|it| it.rank == rank).map(|it| it.host.as_str());
    Err(Failure::new(Cause::FlagsDiffer { flag, rank0 }).of(rank, host).during("settings"))
}

/// The first rank that differs from rank 0, its flag and that of rank 0.
fn different(all: &[Vec<u8>]) -> Option<(usize, String, String)> {
    let flags = |it: &[u8]| String::from_utf8_lossy(it).lines().map(str::to_owned).collect::<Vec<_>>();
    let short = |it: Option<&String>| it.map_or("nothing".into(), |it| it.chars().take(LONGEST).collect());
    let (first, others) = all.split_first()?;
    let rank = others.iter().position(|it| it != first)?;
    let (ours, theirs) = (flags(first), flags(others.get(rank)?));
    let at = (0..ours.len().max(theirs.len())).find(|it| ours.get(*it) != theirs.get(*it))?;
    Some((rank + 1, short(theirs.get(at)), short(ours.get(at))))
}

#[cfg(test)]
mod tests {
    use super::different;

    #[track_caller]
    fn check(all: &[&str], wanted: Option<(usize, &str, &str)>) {
        let all: Vec<Vec<u8>> = all.iter().map(|it| it.as_bytes().to_vec()).collect();
        let wanted = wanted.map(|(rank, theirs, first)| (rank, theirs.to_owned(), first.to_owned()));
        assert_eq!(different(&all), wanted);
    }

    #[test]
    fn the_first_difference_is_found() {
        check(&["a\n-b 8\n-n 1"; 3], None);
        check(&["a\n-b 8\n-n 1", "a\n-b 8\n-n 1", "a\n-b 16\n-n 2"], Some((2, "-b 16", "-b 8")));
        check(&["a\n-b 8", "a"], Some((1, "nothing", "-b 8")));
        check(&["a", &"x".repeat(100)], Some((1, &"x".repeat(60), "a")));
        check(&["a"], None);
        check(&[], None);
    }
}
