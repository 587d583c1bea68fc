//! Where the devices of a machine are in the tables of paths.

use fabric::machine::Machine;

use super::{Device, VisibleDevice};

/// The index of a device in the tables: GPUs first, then NICs, sockets and the switch.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Rows {
    gpus: Vec<Option<usize>>,
    nics: Vec<Option<usize>>,
    pub(super) sockets: usize,
    /// GPUs and NICs together.
    pub(super) devices: usize,
}

impl Rows {
    pub(super) fn new(machine: &Machine, gpus: &[VisibleDevice], nics: &[VisibleDevice]) -> Self {
        let mut rows = Self {
            gpus: vec![None; machine.gpus.len()],
            nics: vec![None; machine.nics.len()],
            sockets: machine.sockets.len(),
            devices: gpus.len() + nics.len(),
        };
        for (row, device) in gpus.iter().enumerate() {
            rows.gpus[device.position] = Some(row);
        }
        for (row, device) in nics.iter().enumerate() {
            rows.nics[device.position] = Some(gpus.len() + row);
        }
        rows
    }

    pub(super) fn all(&self) -> usize {
        self.devices + self.sockets + 1
    }

    pub(super) fn of(&self, device: Device) -> Option<usize> {
        match device {
            Device::Gpu(it) => self.gpus.get(it).copied().flatten(),
            Device::Nic(it) => self.nics.get(it).copied().flatten(),
            Device::Socket(it) => (it < self.sockets).then(|| self.devices + it),
            Device::Switch => Some(self.devices + self.sockets),
        }
    }
}
