//! Manifests, scripts, Dockerfiles and files of variables: what is read has spans inside the text.
#![no_main]

mod lint_input;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some(file) = lint_input::submission(bytes) else { return };
    let check = |range: &std::ops::Range<usize>| {
        assert!(file.text.get(range.clone()).is_some(), "{range:?} of {} bytes", file.text.len());
    };
    for it in &file.settings {
        check(&it.span.range);
        check(&it.name_span.range);
        if let Some(span) = &it.value_span {
            check(&span.range);
        }
        if let Some(owner) = it.owner {
            assert!(file.container(owner).is_some(), "{owner:?}");
        }
    }
    for it in &file.launches {
        it.words.iter().for_each(|it| check(&it.range));
        let _ = (it.number(&["-n", "-np", "--nnodes"]), it.nccl_tests());
    }
});
