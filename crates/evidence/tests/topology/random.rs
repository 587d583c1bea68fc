//! Random machines and random damage.

use evidence::topology;
use proptest::prelude::*;

use super::matrices::pastes;
use super::{data, matrix, print, read};

/// A machine of up to two sockets, each with switches of devices, some of them below a switch above.
fn any_matrix() -> impl Strategy<Value = (Vec<Vec<String>>, usize, Vec<usize>)> {
    // For each device: socket, upper switch, lower switch, whether it is a GPU.
    let device = (0..2_usize, 0..3_usize, 0..3_usize, any::<bool>());
    let nvlink = prop_oneof![Just(0_u32), Just(2), Just(12), Just(18)];
    (proptest::collection::vec(device, 1..12), nvlink).prop_map(|(mut devices, nvlink)| {
        devices.sort_by_key(|it| !it.3);
        devices[0].3 = true;
        let gpus = devices.iter().filter(|it| it.3).count();
        let cell = |a: usize, b: usize| {
            let (x, y) = (devices[a], devices[b]);
            if a == b {
                "X".to_owned()
            } else if x.3 && y.3 && nvlink > 0 {
                format!("NV{nvlink}")
            } else if x.0 != y.0 {
                "SYS".to_owned()
            } else if x.1 != y.1 || x.1 == 0 {
                // The upper switch 0 stands for none.
                "PHB".to_owned()
            } else if x.2 != y.2 {
                "PXB".to_owned()
            } else {
                "PIX".to_owned()
            }
        };
        let n = devices.len();
        let cells = (0..n).map(|a| (0..n).map(|b| cell(a, b)).collect()).collect();
        (cells, gpus, devices.iter().map(|it| it.0).collect())
    })
}

/// What a matrix shows of PCI Express and NVLink.
fn check_same(text: &str, cells: &[Vec<String>]) {
    let it = read(text);
    assert_eq!(matrix(&it.machine), cells, "{text}");
    assert!(!it.notes.iter().any(|it| it.contains("contradict")), "{:?}", it.notes);
}

proptest! {
    #[test]
    fn a_matrix_is_read_as_it_was((cells, gpus, numa) in any_matrix()) {
        check_same(&print(&cells, gpus, &numa), &cells);
    }

    #[test]
    fn a_cut_matrix_is_never_another((cells, gpus, numa) in any_matrix(), at in 0.0..1.0_f64) {
        let text = print(&cells, gpus, &numa);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss, reason = "a place in a short text")]
        let cut = &text[..(text.len() as f64 * at) as usize];
        if let Ok(it) = topology::read(cut.as_bytes()) {
            let read = matrix(&it.machine);
            let noted = it.notes.iter().any(|it| it.contains("missing") || it.contains("cut"));
            prop_assert_eq!(it.machine.gpus.len(), gpus, "{}", cut);
            prop_assert!(noted || read == cells, "{}", cut);
            let joined = |cells: &[Vec<String>]| cells.iter().take(gpus).map(|it| it[..gpus].to_vec()).collect::<Vec<_>>();
            prop_assert_eq!(joined(&read), joined(&cells), "{}", cut);
        }
    }

    #[test]
    fn a_shuffled_matrix_is_the_same((cells, gpus, numa) in any_matrix(), seed in any::<u64>()) {
        let text = print(&cells, gpus, &numa);
        let (header, rest) = text.split_once('\n').expect("a header");
        let (rows, legend) = rest.split_once("\n\n").unwrap_or((rest, ""));
        let mut rows: Vec<&str> = rows.lines().collect();
        let n = rows.len() as u64;
        rows.sort_by_key(|it| (seed ^ it.len() as u64).wrapping_mul(it.bytes().map(u64::from).sum::<u64>() | 1) % (n * 7 + 1));
        check_same(&format!("{header}\n{}\n\n{legend}", rows.join("\n")), &cells);
    }

    #[test]
    fn a_pasted_matrix_is_the_same((cells, gpus, numa) in any_matrix(), how in 0..16_usize) {
        let text = print(&cells, gpus, &numa);
        let pastes = pastes(&text);
        check_same(&pastes[how % pastes.len()].1, &cells);
    }

    /// Rows of two machines in one text: the first machine, or an error, or a note.
    #[test]
    fn mixed_matrices_are_said((one, gpus, numa) in any_matrix(), (two, more, places) in any_matrix(), at in any::<prop::sample::Index>()) {
        let (first, second) = (print(&one, gpus, &numa), print(&two, more, &places));
        let mut lines: Vec<&str> = first.lines().collect();
        let from = at.index(lines.len());
        lines.splice(from..from, second.lines());
        let text = lines.join("\n") + "\n";
        if let Ok(it) = topology::read(text.as_bytes()) {
            prop_assert!(matrix(&it.machine) == one || !it.notes.is_empty(), "{}", text);
        }
    }

    #[test]
    fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let _ = topology::read(&bytes);
    }

    #[test]
    fn no_spoilt_text_panics(kind in 0..7_usize, at in any::<prop::sample::Index>(), with in "[ -~\n\t]{0,12}", length in 0..40_usize) {
        let name = ["dgx-1-v100.txt", "dgx-h100.txt", "graphs.xml", "two-hosts.xml", "p4d-1x4.log", "p5-2x8.log", "graphs.xml"][kind];
        let mut text = data(name);
        let from = at.index(text.len());
        let to = (from + length).min(text.len());
        text.splice(from..to, with.bytes());
        let _ = topology::read(&text);
        let _ = topology::of_case(&evidence::read_texts([(name, &*text)]));
    }
}
