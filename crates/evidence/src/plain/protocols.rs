//! NCCL's Func/Proto/Algo matrix: what the environment allows.
//!
//! ```text
//!      Function |       LL     LL128    Simple   |          Tree           Ring  CollNetDirect ...
//!     AllReduce |        0         0         1   |             1              1              1 ...
//! ```
//! Printed by rank 0, since 2.24, when `NCCL_ALGO` or `NCCL_PROTO` is set. 2 stands for "LL128 as the hardware allows".

use crate::source::{Distinct, Quote};

/// Which protocols and algorithms are allowed, by function.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Protocols {
    /// The columns: protocols, then algorithms.
    pub columns: Vec<Box<str>>,
    /// For each function, its cells.
    pub functions: Distinct<(Box<str>, Vec<u8>)>,
}

static NAMES: &[&str] = &["Function", "Broadcast", "Reduce", "AllGather", "ReduceScatter", "AllReduce"];

pub(super) fn is_row(line: &[u8]) -> bool {
    let Some(bar) = memchr::memchr(b'|', line.get(..line.len().min(40)).unwrap_or_default()) else {
        return false;
    };
    let name = line.get(..bar).unwrap_or_default().trim_ascii();
    NAMES.iter().any(|it| it.as_bytes() == name) && memchr::memchr_iter(b'|', line).count() == 2
}

impl Protocols {
    pub(super) fn take(&mut self, quote: &Quote) {
        let mut parts = quote.text.split('|');
        let name: Box<str> = parts.next().unwrap_or_default().trim().into();
        let cells: Vec<&str> = parts.flat_map(str::split_whitespace).collect();
        if &*name == "Function" {
            if !self.columns.is_empty() {
                return;
            }
            self.columns = cells.into_iter().map(Into::into).collect();
        } else {
            let cells = cells.into_iter().filter_map(|it| it.parse().ok()).collect();
            self.functions.note((name, cells), || quote.clone());
        }
    }

    pub(super) fn merge(&mut self, later: Self) {
        if self.columns.is_empty() {
            self.columns = later.columns;
        }
        self.functions.merge(later.functions);
    }

    /// The protocols that are allowed for all-reduce, if the matrix was printed.
    pub fn allowed(&self) -> Option<Vec<&str>> {
        let row = self.functions.iter().find(|it| &*it.value.0 == "AllReduce")?;
        let named = self.columns.iter().zip(&row.value.1);
        Some(named.take(3).filter(|it| *it.1 > 0).map(|it| &**it.0).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::{Protocols, is_row};
    use crate::source::{Quote, Spot};

    #[test]
    fn reads_the_matrix() {
        let mut it = Protocols::default();
        for line in [
            "     Function |       LL     LL128    Simple   |          Tree           Ring  ",
            "    AllReduce |        0         0         1   |             1              1  ",
        ] {
            assert!(is_row(line.as_bytes()));
            it.take(&Quote::new(Spot { region: 0, line: 0 }, line.as_bytes()));
        }
        assert_eq!(it.allowed(), Some(vec!["Simple"]));
        assert!(!is_row(b"a | b | c"));
    }
}
