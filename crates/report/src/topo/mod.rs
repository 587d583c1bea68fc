//! `plumb topo`: a machine in text, JSON and SVG.

mod assemble;
mod drawing;
mod json;
mod matrix;
mod model;
mod overlay;
mod svg;
mod text;
mod tree;
mod words;

pub use assemble::Question;
pub use json::json;
pub use model::{
    Topo, TopoEdge, TopoJob, TopoNicUse, TopoNode, TopoNormal, TopoNvlink, TopoNvswitch, TopoOverlay,
    TopoPath, TopoSocket, TopoTransport,
};
pub use overlay::{Shape, overlay};
pub use svg::svg;
pub use text::text;
