//! What NCCL decides on a machine, by release and environment.
//!
//! ```text
//! Machine, Settings -> topo -> paths                                the path between any two devices
//! Paths, Layout     -> Decisions -> transport, near_nics, losses    what ranks do with them
//! Paths             -> search -> TopoGraph                          the channels of one node
//! TopoGraphs        -> connect -> Communicator                      rings, trees and channels of all ranks
//! Communicator      -> tuning -> Tuning                             the tuning table, and the choice for a call
//! all of that       -> Prediction                                   what NCCL decides for a job
//! Decisions         -> Survey                                       all of it for one machine, as plain data
//! ```
//!
//! The files are named after what NCCL's own `src/graph` and `src/transport` decide. Paths are compared with the logs of
//! real NCCL line by line; see `cases/oracle-*`.

#![forbid(unsafe_code)]

mod algorithm;
mod communicator;
mod connect;
mod decisions;
mod domain;
mod gpudirect;
mod graph;
mod log;
mod losses;
mod merge;
mod nics;
mod p2p_channels;
mod paths;
mod prediction;
mod search;
mod survey;
mod topo;
mod transport;
mod trees;
pub mod tuner;
pub mod tuning;
mod variables;

pub use algorithm::{Algorithm, Pattern};
pub use communicator::{Abilities, Communicator};
pub use connect::{Connected, ConnectedChannel, Ring, Tree, TreeLinks};
pub use decisions::{Decisions, Undecidable};
pub use fabric::{Layout, PathType, Placement, RankPlace, Settings};
pub use gpudirect::GpuDirect;
pub use graph::{Graphs, SearchedChannel, TopoGraph};
pub use losses::Loss;
pub use nics::NearNics;
pub use p2p_channels::{P2pChannels, P2pScope, p2p_channels};
pub use paths::{Device, Path, Paths, TooLarge, VisibleDevice, VisibleDevices};
pub use prediction::{Job, NEWEST_PLUGIN, Prediction, Unpredictable};
pub use survey::{Between, NicUse, Survey, SurveyedPath, TransportUse};
pub use transport::{Decision, Reason};
pub use variables::{Unheeded, Why, unheeded};
