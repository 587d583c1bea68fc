//! Numbers from outside as data: each with what it means, where it comes from and, where it is fitted, its bounds.

use serde::{Deserialize, Deserializer};

/// A number with what it means and where it comes from.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Constant {
    /// The number.
    pub value: f64,
    /// What it says.
    pub meaning: String,
    /// Where it was read or fitted.
    pub source: String,
    /// The smallest and the largest value that is possible, where the number is fitted to measurements.
    pub fit: Option<(f64, f64)>,
}

/// Only the number.
pub(crate) fn number<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    Constant::deserialize(from).map(|it| it.value)
}

/// Every constant of a file with its group and name, in the order of the file.
pub(crate) fn all(text: &str) -> Vec<(String, Constant)> {
    let groups: toml::Table = toml::from_str(text).unwrap_or_default();
    let mut all = Vec::new();
    for (group, constants) in groups {
        let Some(constants) = constants.as_table().cloned() else { continue };
        for (name, constant) in constants {
            if let Ok(constant) = constant.try_into() {
                all.push((format!("{group}.{name}"), constant));
            }
        }
    }
    all
}

/// `Constants`, a struct of the groups of one file, each with the numbers of its constants; other fields may follow.
macro_rules! groups {
    (
        $($group:ident: $Group:ident { $($name:ident),* $(,)? }),* $(,)?
        $(; $($field:ident: $Field:ty),*)?
    ) => {
        /// All constants of the file.
        #[derive(Debug, Clone, Default, PartialEq, serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        pub(crate) struct Constants {
            $(pub(crate) $group: $Group,)*
            $($(pub(crate) $field: $Field,)*)?
        }

        impl Constants {
            /// Replaces a constant, named as in `network.share`; whether there is one of this name.
            pub(crate) fn set(&mut self, name: &str, value: f64) -> bool {
                match name {
                    $($(concat!(stringify!($group), ".", stringify!($name)) => self.$group.$name = value,)*)*
                    _ => return false,
                }
                true
            }
        }

        $(
            #[derive(Debug, Clone, Default, PartialEq, serde::Deserialize)]
            #[serde(deny_unknown_fields)]
            pub(crate) struct $Group {
                $(#[serde(deserialize_with = "crate::constant::number")] pub(crate) $name: f64),*
            }
        )*
    };
}

pub(crate) use groups;

/// Whether each constant of a file says what it means, lies within its bounds, and is known to `set`.
#[cfg(test)]
pub(crate) fn check(text: &str, mut set: impl FnMut(&str, f64) -> bool) {
    let all = all(text);
    assert!(all.len() >= 30, "constants: {}", all.len());
    for (name, it) in all {
        assert!(it.value.is_finite() && it.value >= 0.0, "{name}");
        assert!(!it.meaning.is_empty() && !it.source.is_empty(), "{name}");
        assert!(it.fit.is_none_or(|(low, high)| low <= it.value && it.value <= high), "{name}");
        assert!(set(&name, it.value), "{name}");
    }
}
