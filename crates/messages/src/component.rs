//! Which part of a product a source file belongs to.

use crate::entry::Product;

/// The part that `file` belongs to: `the InfiniBand and RoCE transport` for `transport/net_ib.cc`.
pub fn component(product: Product, file: &str) -> Option<&'static str> {
    let key = match product {
        Product::Nccl => "nccl",
        Product::AwsOfiNccl => "ofi",
        Product::LibfabricEfa => "efa",
    };
    let file = file.strip_prefix("src/").unwrap_or(file);
    let file = file.strip_prefix("include/").unwrap_or(file);
    let rows = include_str!("../data/components.tsv").lines().filter(|it| !it.starts_with('#'));
    rows.filter_map(|row| {
        let mut columns = row.split('\t');
        Some((columns.next()?, columns.next()?, columns.next()?))
    })
    .find(|(of, path, _)| {
        let fits = match path.strip_prefix('*') {
            Some(piece) => file.contains(piece),
            None => file.starts_with(path),
        };
        *of == key && fits
    })
    .map(|it| it.2)
}

#[cfg(test)]
mod tests {
    use super::component;
    use crate::entry::{Level, Product, all};

    #[test]
    fn files_of_every_age() {
        for (file, part) in [
            ("transport/net_ib.cc", "InfiniBand"),
            ("transport/net_ib/p2p_resiliency.cc", "failover"),
            ("include/alloc.h", "allocation"),
            ("proxy.cc", "proxy"),
        ] {
            assert!(component(Product::Nccl, file).is_some_and(|it| it.contains(part)), "{file}");
        }
        assert_eq!(component(Product::Nccl, "nothing.cc"), None);
    }

    #[test]
    fn nearly_every_warning_of_nccl_has_a_component() {
        let placed: Vec<_> = Product::Nccl
            .entries()
            .iter()
            .filter(|it| it.level == Level::Warn && !it.file.is_empty())
            .collect();
        let without: Vec<_> = placed.iter().filter(|it| it.component().is_none()).map(|it| it.file).collect();
        assert!(without.len() * 50 < placed.len(), "{without:?}");
        assert!(all().count() > 4000);
    }
}
