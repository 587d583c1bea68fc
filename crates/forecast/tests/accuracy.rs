//! The model against published measurements.

#[path = "../examples/accuracy/main.rs"]
mod accuracy;

use accuracy::{page, points};

/// In one test: preparing the measurements takes longer than all else.
#[test]
fn published_measurements_are_normal_and_the_page_is_true() {
    let points = points::Points::read();
    let asked = points.asked();
    let (fitted, left_out) = page::totals(&asked);
    assert!(fitted.inside * 1000 >= fitted.n * 895, "{fitted:?}");
    // TCP, Slingshot and machines without NVLink are part of it, whose intervals are 2 to 4 wide.
    assert!(fitted.width <= 1.9, "{fitted:?}");
    assert!(left_out.width <= 2.1, "{left_out:?}");
    assert!(fitted.error < 0.1, "{fitted:?}");
    assert!(left_out.inside * 100 >= left_out.n * 87, "{left_out:?}");
    assert_eq!((fitted.too_good, left_out.too_good), (0, 0));
    assert_eq!(
        points::sources(asked.iter()),
        *forecast::constants::sources(),
        "data/constants.toml, [sources]: cargo run -p forecast --example accuracy -- sources"
    );
    let page = include_str!("../../../docs/accuracy.md");
    assert!(
        page == page::page(&asked),
        "docs/accuracy.md is old: cargo run -p forecast --example accuracy > docs/accuracy.md"
    );
}
