//! `plumb topo`: a machine in text, JSON and SVG.

mod assemble;
pub mod channels;
mod drawing;
mod json;
pub(crate) mod matrix;
mod model;
pub(crate) mod svg;
pub(crate) mod text;
pub(crate) mod tree;
pub(crate) mod words;

pub use assemble::TopoParts;
pub use json::json;
pub use model::{
    Topo, TopoEdge, TopoFamily, TopoGraph, TopoJob, TopoNicUse, TopoNode, TopoNormal, TopoNvlink,
    TopoNvswitch, TopoOrder, TopoOverlay, TopoPath, TopoSocket, TopoTransport,
};
pub use svg::svg;
pub use text::text;
