//! Pictures of machines: text, JSON and SVG.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod random;
mod samples;
mod schema;

use report::Style;
use report::topo::{Topo, TopoNode, TopoOverlay, svg, text};

fn page(topo: &Topo, style: Style) -> String {
    let mut out = Vec::new();
    text(topo, style, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

fn picture(topo: &Topo) -> String {
    let mut out = Vec::new();
    svg(topo, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn texts() {
    for (name, topo) in samples::all() {
        for width in [60, 100] {
            let text = page(&topo, Style { width, ..Style::default() });
            insta::assert_snapshot!(format!("{name}-{width}"), text);
        }
    }
}

#[test]
fn colour_is_by_quality() {
    let text = page(&samples::mesh(), Style { colour: true, ..Style::default() });
    insta::assert_snapshot!("mesh-colour", text.replace('\u{1b}', "ESC"));
}

/// Colour adds nothing but itself.
#[test]
fn colour_changes_no_word() {
    for (name, topo) in samples::all() {
        let plain = page(&topo, Style::default());
        let mut coloured = page(&topo, Style { colour: true, ..Style::default() });
        while let Some(start) = coloured.find("\u{1b}[") {
            let end = coloured[start..].find('m').unwrap();
            coloured.replace_range(start..=start + end, "");
        }
        assert_eq!(plain, coloured, "{name}");
    }
}

/// Ranks count on from machine to machine; where those of one machine are no whole block, the others have none.
#[test]
fn ranks_do_not_restart() {
    let ranked = |first: u32, step: u32| {
        let mut topo = samples::p5();
        let mut next = first;
        for node in topo.sockets.iter_mut().flat_map(|it| &mut it.children) {
            let TopoNode::Switch { children, .. } = node else { continue };
            for it in children {
                if let TopoNode::Gpu { rank, .. } = it {
                    (*rank, next) = (Some(next), next + step);
                }
            }
        }
        topo.overlay = Some(TopoOverlay { nodes: 2, ..TopoOverlay::default() });
        picture(&topo)
    };
    let labels = |picture: &str, rank: u32| picture.matches(&format!(">rank {rank}<")).count();
    for first in [0, 8] {
        let picture = ranked(first, 1);
        assert!(
            (0..16).all(|it| labels(&picture, it) == 1) && labels(&picture, 16) == 0,
            "{first}: {picture}"
        );
    }
    let picture = ranked(0, 2);
    assert!((0..8).all(|it| labels(&picture, 2 * it) == 1) && labels(&picture, 1) == 0, "{picture}");
}

#[test]
fn every_detail_on_demand() {
    let text = page(&samples::dgx(), Style { verbose: true, ..Style::default() });
    assert!(text.contains("GPU5  0000:15:00.0  Gen5 x8"), "{text}");
    assert!(text.contains("CPUs 24-47"), "{text}");
}

#[test]
fn pictures_are_well_formed() {
    for (name, topo) in samples::all() {
        let text = picture(&topo);
        let document = roxmltree::Document::parse(&text).unwrap_or_else(|it| panic!("{name}: {it}"));
        let root = document.root_element();
        assert!(root.attribute("viewBox").is_some(), "{name}");
        for tag in ["title", "desc"] {
            assert!(
                root.children().any(|it| it.has_tag_name((root.tag_name().namespace().unwrap(), tag))),
                "{name}"
            );
        }
        for tag in ["script", "image", "foreignObject", "a"] {
            assert!(!root.descendants().any(|it| it.tag_name().name() == tag), "{name} has <{tag}>");
        }
        assert!(!text.contains("NaN") && !text.contains("\"inf"), "{name}");
        random::stays_inside(&document);
    }
}

/// What stands in a picture, without what a browser shows for it.
fn words(picture: &str) -> Vec<String> {
    let document = roxmltree::Document::parse(picture).unwrap();
    let texts = document.descendants().filter(|it| it.has_tag_name(("http://www.w3.org/2000/svg", "text")));
    texts.filter_map(|it| it.text().map(ToOwned::to_owned)).collect()
}

#[test]
fn pictures_show_every_device() {
    let count =
        |topo: &Topo, word: &str| words(&picture(topo)).iter().filter(|it| it.starts_with(word)).count();
    assert_eq!(count(&samples::p4d(), "GPU"), 8 + 1);
    assert_eq!(count(&samples::p4d(), "rdmap"), 4);
    assert_eq!(count(&samples::pcie16(), "GPU"), 16 + 1);
    assert_eq!(count(&samples::pcie16(), "PCIe switch"), 6 + 1);
    // Three machines of eight, and six machines of four of which four are drawn.
    assert_eq!(count(&samples::rings(), "GPU"), 24 + 1);
    assert_eq!(count(&samples::trees(), "GPU"), 16 + 1);
    assert_eq!(count(&samples::trees(), "network, and 2 more machines"), 1);
}

#[test]
fn every_connection_is_drawn() {
    let routes = |topo: &Topo| picture(topo).matches("marker-end").count();
    // Eight of each machine; two kinds of them in the legend.
    assert_eq!(routes(&samples::rings()), 24 + 2);
    // Three of each machine, and five between machines of which four are drawn.
    assert_eq!(routes(&samples::trees()), 12 + 5 + 2);
    assert_eq!(routes(&samples::p5()), 0);
}
