//! The machines of the catalogue: what `plumb machines` prints. Schema `plumb.machines/1`.

use std::io::{self, Write};

use fabric::catalogue::{self, Inside, Model};
use fabric::machine::NicKind;
use serde::Serialize;

/// The list, in the order of the catalogue.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Machines {
    /// `plumb.machines/1`.
    pub schema: &'static str,
    /// Instance types, then the others.
    pub machines: Vec<Machine>,
}

/// One machine.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Machine {
    /// What `--instance` takes.
    pub name: &'static str,
    /// Its usual name, if that differs.
    pub title: Option<&'static str>,
    /// Whether it is an instance type of AWS.
    pub instance_type: bool,
    /// The model of its GPUs.
    pub gpu: &'static str,
    /// How many GPUs it has.
    pub gpus: u32,
    /// How its GPUs are connected.
    pub inside: Inside,
    /// The network between such machines.
    pub network: Network,
    /// NICs of that network; zero if there is only TCP.
    pub nics: u32,
    /// Bandwidth of the network of one machine.
    pub network_gbps: f64,
    /// Whether NICs read and write GPU memory directly; `None` if no source states it.
    pub gpudirect: Option<bool>,
    /// Machines per NVLink domain.
    pub nvlink_domain: u32,
    /// Whether the wiring of its devices is known.
    pub wiring_known: bool,
    /// The sources of its facts.
    pub sources: Vec<&'static str>,
}

/// The network between machines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Network {
    /// EFA of AWS.
    Efa,
    /// `InfiniBand`.
    InfiniBand,
    /// RDMA over Ethernet.
    Roce,
    /// TCP from and to GPU memory: GPUDirect-TCPX and -TCPXO of Google Cloud.
    #[serde(rename = "tcp_gpudirect")]
    GpuDirectTcp,
    /// Slingshot of HPE.
    Slingshot,
    /// TCP over plain Ethernet.
    Tcp,
}

impl From<NicKind> for Network {
    fn from(kind: NicKind) -> Self {
        match kind {
            NicKind::Efa => Self::Efa,
            NicKind::InfiniBand => Self::InfiniBand,
            NicKind::Roce => Self::Roce,
            NicKind::GpuDirectTcp => Self::GpuDirectTcp,
            NicKind::Slingshot => Self::Slingshot,
            NicKind::Ethernet | NicKind::Unknown => Self::Tcp,
        }
    }
}

impl From<&Model> for Machine {
    fn from(it: &Model) -> Self {
        Self {
            name: it.name,
            title: it.title,
            instance_type: it.instance.is_some(),
            gpu: &it.gpu.name,
            gpus: it.gpus,
            inside: it.inside,
            network: it.network.into(),
            nics: it.nics,
            network_gbps: it.bandwidth.0,
            gpudirect: it.gpudirect,
            nvlink_domain: it.domain,
            wiring_known: it.wiring.is_some(),
            sources: it.sources(),
        }
    }
}

impl Machine {
    /// `32 x 100 Gbps EFA`, `2.5 Gbps TCP`
    fn network(&self) -> String {
        let kind = match self.network {
            Network::Efa => "EFA",
            Network::InfiniBand => "InfiniBand",
            Network::Roce => "RoCE",
            Network::GpuDirectTcp => "TCPX",
            Network::Slingshot => "Slingshot",
            Network::Tcp => "TCP",
        };
        match self.nics {
            0 => format!("{} Gbps {kind}", self.network_gbps),
            nics => format!("{nics} x {} Gbps {kind}", self.network_gbps / f64::from(nics)),
        }
    }
}

impl Machines {
    /// All machines of the catalogue.
    pub fn of_catalogue() -> Self {
        Self { schema: "plumb.machines/1", machines: catalogue::all().iter().map(Machine::from).collect() }
    }

    /// A table. Where it does not fit, the last cells stand on the next line.
    pub fn text(&self, room: usize, out: &mut impl Write) -> io::Result<()> {
        let head = ["NAME", "GPUS", "INSIDE", "NETWORK"].map(str::to_owned);
        let rows = self.machines.iter().map(|it| {
            [
                it.name.to_owned(),
                format!("{} x {}", it.gpus, it.gpu),
                it.inside.name().to_owned(),
                it.network(),
            ]
        });
        let table: Vec<[String; 4]> = std::iter::once(head).chain(rows).collect();
        let width = |column: usize| table.iter().map(|row| row[column].len()).max().unwrap_or_default();
        let widths: [usize; 3] = std::array::from_fn(width);
        for row in &table {
            let mut line = String::new();
            for (at, text) in row.iter().enumerate() {
                let width = widths.get(at).copied().unwrap_or_default();
                let cell = format!("{text:width$}");
                if at > 0 && line.len() + 2 + cell.len() > room {
                    writeln!(out, "{}", line.trim_end())?;
                    line = " ".repeat(4);
                }
                line.push_str(if line.trim().is_empty() { "" } else { "  " });
                line.push_str(&cell);
            }
            writeln!(out, "{}", line.trim_end())?;
        }
        Ok(())
    }

    /// Schema `plumb.machines/1`.
    pub fn json(&self, out: &mut impl Write) -> io::Result<()> {
        crate::json::write_json(self, out)
    }
}

#[cfg(test)]
mod tests {
    use fabric::catalogue;

    use super::Machines;

    #[test]
    fn every_machine_has_its_line() {
        let mut out = Vec::new();
        Machines::of_catalogue().text(100, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text.lines().count(), catalogue::names().count() + 1);
        let line = |name: &str| text.lines().find(|it| it.starts_with(name)).unwrap().to_owned();
        let words = |line: String| line.split_whitespace().collect::<Vec<_>>().join(" ");
        let p5 = words(line("p5.48xlarge"));
        assert!(p5.starts_with("p5.48xlarge 8 x H100-SXM5-80GB NVSwitch 32 x 100 Gbps EFA"), "{p5}");
        assert!(words(line("g5.xlarge")).starts_with("g5.xlarge 1 x A10G one GPU 2.5 Gbps TCP"));
        let dgx = words(line("dgx-1v"));
        assert!(dgx.contains("NVLink mesh 4 x 100 Gbps InfiniBand"), "{dgx}");
        assert!(text.lines().all(|it| it.len() <= 100 && !it.ends_with(' ')), "{text}");
        let mut out = Vec::new();
        Machines::of_catalogue().text(60, &mut out).unwrap();
        let narrow = String::from_utf8(out).unwrap();
        assert!(narrow.lines().all(|it| it.len() <= 60), "{narrow}");
    }
}
