//! `plumb topo`: a machine in text, JSON and SVG.

mod model;

pub use model::{
    Topo, TopoEdge, TopoJob, TopoNicUse, TopoNode, TopoNormal, TopoNvlink, TopoNvswitch, TopoOverlay,
    TopoPath, TopoSocket, TopoTransport,
};
