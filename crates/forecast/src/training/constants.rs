//! What GPUs, links and frameworks reach in training, as data: `data/training.toml`, each number with its meaning and source.

use std::sync::OnceLock;

use crate::constant::{self, Constant, groups};

groups! {
    gemm: Gemm {
        volta, ampere, ada, hopper, blackwell, fp8_ada, fp8_hopper, fp8_blackwell, ultra, early, exposed, tail
    },
    attention: Attention {
        volta, ampere, ada, hopper, blackwell, backward, cudnn, first, short, batched
    },
    memory: Memory { share, full, heads, ffn, backward, operators, head, optimizer },
    experts: Experts { launch, host, moved },
    host: Host { ampere, hopper, backward, collective, softmax, blocking },
    plain: Plain { full, heads, ffn, norms, gate, host },
    comm: Comm { tensor_hidden, hidden, slowdown, sends_hidden, congestion, far, prefetch, slowest },
    early: Early { gathered, part },
    offload: Offload { pci, cpu_adam, threads },
    state: State { fragments, context, channel, workspace },
    spread: Spread { known, unknown, offload, memory },
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
    constant::all(TEXT)
}

#[cfg(test)]
mod tests {
    use super::{Constants, TEXT};

    #[test]
    fn every_constant_says_what_it_means() {
        let mut constants = toml::from_str::<Constants>(TEXT).unwrap();
        crate::constant::check(TEXT, |name, value| constants.set(name, value));
    }
}
