//! `nvidia-smi topo -m`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let table = [b"\tGPU0\tGPU1\tNIC0\tCPU Affinity\n".as_slice(), bytes].concat();
    let case = evidence::read_texts([("topo.txt", table.as_slice())]);
    for matrix in &case.matrices {
        assert!(matrix.rows.iter().all(|it| it.paths.len() <= matrix.columns.len()));
        let _ = matrix.gpu_paths().count();
    }
});
