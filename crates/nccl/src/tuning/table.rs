//! The tuning table.

use std::fmt;

use fabric::collective::Collective;

use super::allowed::Allowed;
use super::list::BadList;
use super::model::Model;
use super::threads::{ByAlgorithm, Thresholds, threads, thresholds};
use super::{GraphInfos, Protocol, TUNED, Tuned, algorithms, function_name};
use crate::{Algorithm, Settings};

/// Latency and bandwidth of a collective by one algorithm and protocol.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Cell {
    /// Microseconds.
    pub latency: f32,
    /// GB/s, the bytes of the call over time; 0 where NCCL may not use it.
    pub bandwidth: f32,
}

/// What NCCL expects of every collective by every algorithm and protocol.
#[derive(Debug, Clone, PartialEq)]
pub struct Tuning {
    pub(super) settings: Settings,
    pub(super) communicator: Tuned,
    cells: [[[Cell; 3]; 7]; 5],
    /// Up to 2.23 the ring stands in where nothing else is allowed: its bandwidth by collective and protocol.
    pub(super) spare_ring: [[f32; 3]; 5],
    pub(super) threads: ByAlgorithm,
    pub(super) thresholds: Thresholds,
}

impl Tuning {
    /// The model of a communicator. `Err` where NCCL refuses `NCCL_ALGO` or `NCCL_PROTO`.
    pub fn new(settings: &Settings, communicator: &Tuned, graphs: &GraphInfos) -> Result<Self, BadList> {
        let mut tuning = Self {
            settings: settings.clone(),
            communicator: *communicator,
            cells: Default::default(),
            spare_ring: Default::default(),
            threads: threads(settings, &graphs.ring),
            thresholds: Default::default(),
        };
        // `ncclTopoTuneModel` returns here for one rank.
        if communicator.ranks <= 1 {
            return Ok(tuning);
        }
        let model = Model::new(settings, communicator, graphs);
        let allowed = Allowed::new(settings, communicator, graphs)?;
        for (place, collective) in TUNED.into_iter().enumerate() {
            tuning.fill(place, collective, &model, &allowed);
        }
        tuning.thresholds = thresholds(settings, communicator.ranks);
        Ok(tuning)
    }

    fn fill(&mut self, place: usize, collective: Collective, model: &Model<'_>, allowed: &Allowed<'_>) {
        let version = self.settings.version;
        for &algorithm in algorithms(version) {
            for protocol in Protocol::ALL {
                if !model.has(collective, algorithm, protocol) {
                    continue;
                }
                let bandwidth = model.bandwidth(collective, algorithm, protocol);
                let by_protocol = allowed.protocol(place, algorithm, protocol);
                // Since 2.22 the ring that stands in keeps to the protocols that are allowed.
                if algorithm == Algorithm::Ring && (by_protocol || !self.settings.since(2, 22, 0)) {
                    self.spare_ring[place][protocol.index()] = bandwidth;
                }
                let is_allowed = by_protocol && allowed.algorithm(place, collective, algorithm);
                self.cells[place][algorithm.index()][protocol.index()] = Cell {
                    latency: model.latency(collective, algorithm, protocol),
                    bandwidth: if is_allowed { bandwidth } else { 0.0 },
                };
            }
        }
        let spare = self.settings.since(2, 19, 0) && !self.settings.since(2, 24, 0);
        let is_usable = |it: &Cell| it.bandwidth.abs() > 0.0;
        if spare && !self.cells[place].as_flattened().iter().any(is_usable) {
            let ring = &mut self.cells[place][Algorithm::Ring.index()];
            for (cell, bandwidth) in ring.iter_mut().zip(self.spare_ring[place]) {
                cell.bandwidth = bandwidth;
            }
        }
    }

    /// A cell; zero for a collective that NCCL builds from others.
    pub fn cell(&self, collective: Collective, algorithm: Algorithm, protocol: Protocol) -> Cell {
        TUNED
            .iter()
            .position(|it| *it == collective)
            .map_or_else(Cell::default, |it| self.cells[it][algorithm.index()][protocol.index()])
    }

    /// The most threads of a channel.
    pub fn max_threads(&self, algorithm: Algorithm, protocol: Protocol) -> u32 {
        self.threads[algorithm.index()][protocol.index()]
    }

    /// `8/8/64 | 128/8/64 | 512 | 512`: bytes per thread of tree, ring, `CollNetDirect` and `CollNetChain`.
    pub fn thresholds(&self) -> String {
        let of = |algorithm: Algorithm| self.thresholds[algorithm.index()];
        let three = |algorithm| of(algorithm).map(|it| it.to_string()).join("/");
        let (direct, chain) = (of(Algorithm::CollNetDirect)[2], of(Algorithm::CollNetChain)[2]);
        format!("{} | {} | {direct} | {chain}", three(Algorithm::Tree), three(Algorithm::Ring))
    }

    /// The lines of the table, as rank 0 prints them at TUNING level.
    pub fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for block in algorithms(self.settings.version).chunks(3) {
            let cells = |lead: &str, cell: &dyn Fn(Algorithm, Protocol) -> String| {
                let all = block.iter().flat_map(|&a| Protocol::ALL.map(|p| cell(a, p)));
                all.fold(lead.to_owned(), |line, it| line + &it + " |")
            };
            let name = |it: &Algorithm| format!(" {:14}   {:>14}   {:14} |", "", it.name(), "");
            lines.push(block.iter().fold("  Algorithm   |".to_owned(), |line, it| line + &name(it)));
            // The line of the protocols is always that of three algorithms.
            let names = Protocol::ALL.map(|it| format!(" {:>14} |", it.name())).concat();
            lines.push(format!("  Protocol    |{}", names.repeat(3)));
            lines.push(cells(" Max NThreads |", &|a, p| format!(" {:>14}", self.max_threads(a, p))));
            for collective in TUNED {
                let lead = format!("{:>13} |", function_name(collective));
                lines.push(cells(&lead, &|a, p| self.cell(collective, a, p).to_string()));
            }
        }
        lines
    }
}

impl fmt::Display for Cell {
    /// As NCCL prints it: `   175.2/   9.6`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:8.1}/{:6.1}", self.latency, self.bandwidth)
    }
}
