//! The bandwidths a channel may have, in GB/s, fastest first (`src/graph/search.cc`, `speedArray*`).

use crate::Settings;

const INTRA: &[f32] = &[40.0, 30.0, 20.0, 18.0, 15.0, 12.0, 10.0, 9.0, 7.0, 6.0, 5.0, 4.0, 3.0];
const INTER: &[f32] = &[
    48.0, 30.0, 28.0, 24.0, 20.0, 18.0, 15.0, 12.0, 10.0, 9.0, 7.0, 6.0, 5.0, 4.0, 3.0, 2.4, 1.2, 0.24, 0.12,
];

const SM90_INTRA_18: &[f32] = &[60.0, 40.0, 30.0, 24.0, 20.0, 15.0, 12.0, 6.0, 3.0];
const SM90_INTRA_19: &[f32] = &[60.0, 50.0, 40.0, 30.0, 24.0, 20.0, 15.0, 12.0, 6.0, 3.0];
const SM90_INTRA: &[f32] = &[60.0, 50.0, 40.0, 30.0, 24.0, 20.0, 15.0, 12.0, 11.0, 6.0, 3.0];
const SM90_INTER_18: &[f32] =
    &[48.0, 45.0, 42.0, 40.0, 30.0, 24.0, 20.0, 17.5, 15.0, 12.0, 6.0, 3.0, 2.4, 1.2, 0.24, 0.12];
const SM90_INTER_18_1: &[f32] =
    &[48.0, 45.0, 42.0, 40.0, 30.0, 24.0, 15.0, 12.0, 6.0, 3.0, 2.4, 1.2, 0.24, 0.12];
const SM90_INTER: &[f32] =
    &[48.0, 45.0, 42.0, 40.0, 30.0, 24.0, 22.0, 20.0, 17.5, 15.0, 12.0, 6.0, 3.0, 2.4, 1.2, 0.24, 0.12];

const SM100_INTRA_25: &[f32] = &[90.0, 80.0, 70.0, 60.0, 50.0, 40.0, 30.0, 24.0, 20.0, 19.0];
const SM100_INTRA_27: &[f32] = &[90.0, 80.0, 70.0, 60.0, 50.0, 40.0, 30.0, 24.0, 20.0, 19.0, 18.0];
const SM100_INTRA: &[f32] = &[90.0, 80.0, 70.0, 60.0, 50.0, 45.0, 40.0, 30.0, 24.0, 20.0, 19.0, 18.0];
const SM100_INTER_27_3: &[f32] =
    &[47.9, 45.0, 42.0, 40.0, 30.0, 24.0, 22.0, 20.0, 17.5, 15.0, 12.0, 6.0, 3.0, 2.4, 1.2, 0.24, 0.12];
/// Of 2.30.3. Older releases lack the first ones.
const SM100_INTER: &[f32] = &[
    96.0, 86.0, 80.0, 48.0, 45.1, 42.0, 40.0, 30.0, 24.0, 22.0, 20.0, 17.5, 15.0, 12.0, 6.0, 3.0, 2.4, 1.2,
    0.24, 0.12,
];

/// The bandwidths to try, by the lowest compute capability of the node's GPUs.
pub(super) fn speeds(compute: u32, inter: bool, settings: &Settings) -> Vec<f32> {
    let since = |minor, patch| settings.since(2, minor, patch);
    // 2.25.1 is the first release with a list for Blackwell.
    if compute >= 100 && since(25, 1) {
        return if inter { sm100_inter(settings) } else { sm100_intra(settings).to_vec() };
    }
    let list = match (compute >= 90, inter) {
        (false, false) => INTRA,
        (false, true) => INTER,
        (true, false) if !since(19, 1) => SM90_INTRA_18,
        (true, false) if !since(21, 5) => SM90_INTRA_19,
        (true, false) => SM90_INTRA,
        (true, true) if !since(18, 3) => SM90_INTER_18_1,
        (true, true) if !since(19, 1) => SM90_INTER_18,
        (true, true) => SM90_INTER,
    };
    list.to_vec()
}

fn sm100_intra(settings: &Settings) -> &'static [f32] {
    if settings.since(2, 29, 2) {
        SM100_INTRA
    } else if settings.since(2, 27, 3) {
        SM100_INTRA_27
    } else {
        SM100_INTRA_25
    }
}

fn sm100_inter(settings: &Settings) -> Vec<f32> {
    let since = |minor, patch| settings.since(2, minor, patch);
    if !since(27, 3) {
        return SM90_INTER.to_vec();
    }
    if !since(27, 5) {
        return SM100_INTER_27_3.to_vec();
    }
    let [n96, n86, n80] = [since(27, 6), since(30, 3), since(29, 7)];
    let kept = |it: &&f32| match **it {
        speed if speed >= 96.0 => n96,
        speed if speed >= 86.0 => n86,
        speed if speed >= 80.0 => n80,
        _ => true,
    };
    SM100_INTER.iter().filter(kept).copied().collect()
}

#[cfg(test)]
mod tests {
    use super::speeds;
    use crate::Settings;
    use fabric::Version;

    #[test]
    fn lists_differ_by_release() {
        let first = |compute, inter, minor, patch| {
            speeds(compute, inter, &Settings::new(Version::new(2, minor, patch)))[..3].to_vec()
        };
        assert_eq!(first(100, true, 30, 7), [96.0, 86.0, 80.0]);
        assert_eq!(first(100, true, 29, 7), [96.0, 80.0, 48.0]);
        assert_eq!(first(100, true, 28, 9), [96.0, 48.0, 45.1]);
        assert_eq!(first(100, true, 27, 5), [48.0, 45.1, 42.0]);
        assert_eq!(first(100, true, 27, 3), [47.9, 45.0, 42.0]);
        assert_eq!(first(100, true, 26, 2), [48.0, 45.0, 42.0]);
        assert_eq!(first(100, false, 24, 3), [60.0, 50.0, 40.0]);
        assert_eq!(first(90, false, 18, 6), [60.0, 40.0, 30.0]);
        assert_eq!(first(89, false, 28, 9), [40.0, 30.0, 20.0]);
    }
}
