//! What GPUs, links and frameworks reach in training, as data: `data/training.toml`, each number with its meaning and source.

use std::sync::OnceLock;

use serde::Deserialize;

use crate::constants::Constant;

macro_rules! groups {
    ($($group:ident: $Group:ident { $($name:ident),* $(,)? }),* $(,)?) => {
        /// All constants of training.
        #[derive(Debug, Clone, Default, PartialEq, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub(crate) struct Constants { $(pub(crate) $group: $Group,)* }

        impl Constants {
            /// Replaces a constant, named as in `gemm.ampere`; whether there is one of this name.
            pub(crate) fn set(&mut self, name: &str, value: f64) -> bool {
                match name {
                    $($(concat!(stringify!($group), ".", stringify!($name)) => self.$group.$name = value,)*)*
                    _ => return false,
                }
                true
            }
        }

        $(
            #[derive(Debug, Clone, Default, PartialEq, Deserialize)]
            #[serde(deny_unknown_fields)]
            pub(crate) struct $Group { $(#[serde(deserialize_with = "number")] pub(crate) $name: f64),* }
        )*
    };
}

groups! {
    gemm: Gemm {
        volta, ampere, ada, hopper, blackwell, fp8_ada, fp8_hopper, fp8_blackwell, ultra, early, exposed, tail, accumulate
    },
    attention: Attention {
        volta, ampere, ada, hopper, blackwell, backward, cudnn, short, batched
    },
    memory: Memory { share, full, heads, ffn, backward, eager, operators, head, optimizer, cast },
    experts: Experts { launch, host, moved },
    host: Host { ampere, hopper, backward, collective, softmax },
    comm: Comm { tensor_hidden, hidden, slowdown, sends, sends_hidden, congestion, prefetch, slowest },
    offload: Offload { pci, cpu_adam, threads },
    state: State { fragments, context, channel, workspace },
    spread: Spread { known, unknown, offload, memory },
}

fn number<'de, D: serde::Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    Constant::deserialize(from).map(|it| it.value)
}

const TEXT: &str = include_str!("../../data/training.toml");

/// The constants of this release.
pub(crate) fn constants() -> &'static Constants {
    static ALL: OnceLock<Constants> = OnceLock::new();
    // The data is part of the binary, and a test reads it.
    ALL.get_or_init(|| toml::from_str(TEXT).unwrap_or_default())
}

/// Every constant with its group and name, in the order of the file.
pub fn all() -> Vec<(String, Constant)> {
    let groups: toml::Table = toml::from_str(TEXT).unwrap_or_default();
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

#[cfg(test)]
mod tests {
    use super::{Constants, TEXT, all};

    #[test]
    fn every_constant_says_what_it_means() {
        let mut constants = toml::from_str::<Constants>(TEXT).unwrap();
        let all = all();
        assert!((30..60).contains(&all.len()), "few constants: {}", all.len());
        for (name, it) in all {
            assert!(it.value.is_finite() && it.value >= 0.0, "{name}");
            assert!(!it.meaning.is_empty() && !it.source.is_empty(), "{name}");
            assert!(it.fit.is_none_or(|(low, high)| low <= it.value && it.value <= high), "{name}");
            assert!(constants.set(&name, it.value), "{name}");
        }
    }
}
