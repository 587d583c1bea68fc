//! `plumb topo`: a machine in text, JSON and SVG.

mod assemble;
mod drawing;
mod json;
mod matrix;
mod model;
mod overlay;
pub(crate) mod svg;
mod text;
mod tree;
mod words;

pub use assemble::Question;
pub use json::json;
pub use model::{
    Topo, TopoEdge, TopoGraph, TopoJob, TopoNicUse, TopoNode, TopoNormal, TopoNvlink, TopoNvswitch,
    TopoOrder, TopoOverlay, TopoPath, TopoSocket, TopoTransport,
};
pub use overlay::{Shape, overlay, overlay_of_graph};
pub use svg::svg;
pub use text::text;
