//! The model against published measurements.

#[path = "../examples/accuracy.rs"]
mod accuracy;

#[test]
fn most_published_measurements_are_normal() {
    let score = accuracy::total();
    assert!(score.inside * 100 >= score.n * 90, "{score:?}");
    assert!(score.width <= 1.6, "{score:?}");
    assert!(score.error < 0.12, "{score:?}");
}

#[test]
fn the_page_is_true() {
    let page = include_str!("../../../docs/accuracy.md");
    assert!(
        page == accuracy::page(),
        "docs/accuracy.md is old: cargo run -p forecast --example accuracy > docs/accuracy.md"
    );
}
