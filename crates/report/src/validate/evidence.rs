//! The measurements behind an accusation, and how sure it is, in words.

use ::validate::Class;

use super::{Accused, Validate, bandwidth, class, percent};

/// Measurements that are shown of one finding.
const MOST: usize = 5;
/// Below this chance nobody doubts it; below the other it is sure enough to act.
const CERTAIN: f64 = 1e-6;
const HIGH: f64 = 1e-3;

impl Accused {
    /// Whether it is a NIC of all machines, none of which is to blame.
    fn is_rail(&self) -> bool {
        self.nic.is_some() && self.class == class(Class::Tier)
    }

    /// Whether it says that something is wrong with this machine, or with a part of it.
    pub(super) fn accuses(&self, host: &str) -> bool {
        !self.is_rail() && self.hosts.iter().any(|it| it == host)
    }

    /// The machines that something is wrong with.
    pub(super) fn accused(&self) -> &[String] {
        if self.is_rail() { &[] } else { &self.hosts }
    }

    /// `NIC mlx5_3`, `NIC 3`
    pub(super) fn nic_name(&self) -> Option<String> {
        self.nic.map(|it| nic_name(it, self.device.as_deref()))
    }

    /// How sure it is; none where it was not judged by chance: a machine that says so itself, or one that fails.
    pub(super) fn confidence(&self) -> Option<String> {
        if self.chance <= 0.0 || self.chance >= 1.0 {
            return None;
        }
        Some(match self.chance {
            it if it < CERTAIN => {
                "confidence: very high; chance makes fewer than one of a million such fleets look so"
                    .to_owned()
            }
            it => format!(
                "confidence: {}; chance makes one of {:.0} such fleets look so",
                if it < HIGH { "high" } else { "fair" },
                1.0 / it
            ),
        })
    }
}

/// How a NIC is called: by its device where that is known, otherwise by its number from 0.
pub(super) fn nic_name(nic: usize, device: Option<&str>) -> String {
    match device {
        Some(device) => format!("NIC {device}"),
        None => format!("NIC {nic}"),
    }
}

impl Validate {
    /// The pairs of an accused machine or link, worst first, each beside what the partner reaches with others.
    pub(super) fn evidence(&self, it: &Accused) -> Vec<String> {
        let Some(matrix) = self.matrix.as_ref().filter(|_| it.tests.is_empty() && it.chance > 0.0) else {
            return Vec::new();
        };
        let place = |name: &String| self.hosts.iter().position(|it| it == name);
        let own: Vec<usize> = it.hosts.iter().filter_map(place).collect();
        let of_it = |hosts: &[usize; 2]| match own[..] {
            [one] => hosts.contains(&one),
            [one, other] => hosts.contains(&one) && hosts.contains(&other),
            _ => false,
        };
        let mut cells: Vec<_> = matrix.pairs.iter().filter(|it| of_it(&it.hosts)).collect();
        cells.sort_by(|a, b| a.share.unwrap_or(0.0).total_cmp(&b.share.unwrap_or(0.0)));
        let name = |at: usize| self.hosts.get(at).map_or("?", String::as_str);
        let best = |host: usize| {
            let others = matrix.pairs.iter().filter(|it| it.hosts.contains(&host) && !of_it(&it.hosts));
            others.filter_map(|it| it.share).reduce(f64::max)
        };
        let beside = |host: usize| best(host).map_or_else(|| "-".to_owned(), percent);
        let rows = cells.iter().map(|cell| {
            let reached = cell.share.map_or_else(|| "failed".to_owned(), |it| bandwidth(it * matrix.normal));
            let share = cell.share.map_or_else(String::new, percent);
            let lost = cell
                .resent
                .filter(|_| it.loss.is_some())
                .map(|it| format!("{} sent again", super::fine_percent(it)));
            let [one, other] = cell.hosts;
            let who = match own[..] {
                [host] => vec![if one == host { other } else { one }],
                _ => vec![one, other],
            };
            let names: Vec<&str> = who.iter().map(|it| name(*it)).collect();
            let others: Vec<String> = who.iter().map(|it| beside(*it)).collect();
            [names.join(" - "), reached, lost.unwrap_or(share), others.join(", ")]
        });
        let head = [
            "with",
            "reached",
            if it.loss.is_some() { "lost" } else { "of normal" },
            "partner with others, best",
        ]
        .map(str::to_owned);
        let table: Vec<[String; 4]> = std::iter::once(head).chain(rows.take(MOST)).collect();
        let wide = |column: usize| table.iter().map(|it| it[column].chars().count()).max().unwrap_or(0);
        let (first, second, third) = (wide(0), wide(1), wide(2));
        let mut lines: Vec<String> = table
            .iter()
            .map(|[with, reached, share, best]| {
                format!("{with:<first$}  {reached:>second$}  {share:>third$}  {best}")
            })
            .collect();
        if cells.is_empty() {
            return Vec::new();
        }
        if cells.len() > MOST {
            lines.push(format!("{} more", cells.len() - MOST));
        }
        lines
    }
}
