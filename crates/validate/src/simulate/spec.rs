//! A fleet in a line: `nodes=100,slow=node037:0.8,noise=2%`.

use crate::fleet::Host;

/// A modelled fleet.
#[derive(Debug, Clone, PartialEq)]
pub struct Spec {
    /// Machines, named node000 and so on.
    pub nodes: usize,
    /// What a healthy pair reaches, in GB/s.
    pub rate: f64,
    /// NICs of a machine.
    pub nics: usize,
    /// Machines under one switch; 0 if that is not known.
    pub leaf: usize,
    /// The standard deviation of a measurement.
    pub noise: f64,
    /// How far healthy machines lie apart.
    pub spread: f64,
    /// How many measurements are lower by chance, by 10 to 50 %: another job's traffic.
    pub dips: f64,
    /// Degrees of freedom of the noise, a Student distribution: 3 has many far values; 0 is a normal distribution.
    pub tails: usize,
    /// Slow machines and the part of the rate they reach.
    pub slow: Vec<(Host, f64)>,
    /// Machines slow inside.
    pub local: Vec<(Host, f64)>,
    /// Machines that are slow at times: the part they reach then, and how often.
    pub flaky: Vec<(Host, f64, f64)>,
    /// Slow links.
    pub link: Vec<(Host, Host, f64)>,
    /// Slow NICs.
    pub nic: Vec<(Host, usize, f64)>,
    /// NICs that are slow on all machines.
    pub rail: Vec<(usize, f64)>,
    /// Switches whose uplinks are slow.
    pub tier: Vec<(usize, f64)>,
    /// Machines, as both ends, and links that lose this share of their packets.
    pub loss: Vec<(Host, Host, f64)>,
    /// What every machine sends again, on average: full queues, a limit on the rate.
    pub congestion: f64,
    /// Machines on which nothing runs.
    pub dead: Vec<Host>,
    /// Another seed is another fleet of the same kind.
    pub seed: u64,
}

impl Default for Spec {
    fn default() -> Self {
        Self {
            nodes: 16,
            rate: 370.0,
            nics: 8,
            leaf: 0,
            noise: 0.01,
            spread: 0.01,
            dips: 0.0,
            tails: 0,
            slow: Vec::new(),
            local: Vec::new(),
            flaky: Vec::new(),
            link: Vec::new(),
            nic: Vec::new(),
            rail: Vec::new(),
            tier: Vec::new(),
            loss: Vec::new(),
            congestion: 0.0,
            dead: Vec::new(),
            seed: 1,
        }
    }
}

const KEYS: [&str; 19] = [
    "nodes",
    "rate",
    "nics",
    "leaf",
    "noise",
    "spread",
    "dips",
    "tails",
    "slow",
    "local",
    "flaky",
    "link",
    "nic",
    "rail",
    "tier",
    "loss",
    "congestion",
    "dead",
    "seed",
];
/// How the faults are written.
const FORMS: [(&str, &str); 9] = [
    ("slow", "slow=MACHINE:SHARE"),
    ("local", "local=MACHINE:SHARE"),
    ("flaky", "flaky=MACHINE:SHARE:HOW-OFTEN"),
    ("link", "link=MACHINE-MACHINE:SHARE"),
    ("nic", "nic=MACHINE:NIC:SHARE"),
    ("rail", "rail=NIC:SHARE"),
    ("tier", "tier=SWITCH:SHARE"),
    ("loss", "loss=MACHINE:SHARE"),
    ("dead", "dead=MACHINE"),
];
/// More than the largest clusters have.
const MOST_NODES: usize = 20_000;
/// From this Jaro similarity on, a key is taken for a typing error of another.
const ALIKE: f64 = 0.8;

impl Spec {
    /// Reads `key=value` pairs between commas.
    pub fn read(text: &str) -> Result<Self, String> {
        let mut spec = Self::default();
        let mut faults = Vec::new();
        let mut given: Vec<&str> = Vec::new();
        if text.trim().is_empty() {
            return Err(format!(
                "needs a fleet, for example nodes=100,slow=node037:0.8; the keys are {}",
                KEYS.join(", ")
            ));
        }
        for part in text.split(',').map(str::trim).filter(|it| !it.is_empty()) {
            let (key, value) =
                part.split_once('=').ok_or_else(|| format!("`{part}`: a key, `=` and a value are needed"))?;
            let wrong = |what: &str| format!("`{part}`: {what}");
            let key = key.trim();
            if KEYS.contains(&key) && !FORMS.iter().any(|it| it.0 == key) {
                if given.contains(&key) {
                    return Err(wrong(&format!("`{key}` is given twice")));
                }
                given.push(key);
            }
            match key {
                "nodes" => spec.nodes = count(value, 2, MOST_NODES).map_err(|it| wrong(&it))?,
                "nics" => spec.nics = count(value, 1, 64).map_err(|it| wrong(&it))?,
                "leaf" => spec.leaf = count(value, 2, MOST_NODES).map_err(|it| wrong(&it))?,
                "seed" => spec.seed = value.parse().map_err(|_| wrong("a number is needed"))?,
                "rate" => spec.rate = number(value, 0.001, 1e6).map_err(|it| wrong(&it))?,
                "noise" => spec.noise = number(value, 0.0, 0.5).map_err(|it| wrong(&it))?,
                "spread" => spec.spread = number(value, 0.0, 0.5).map_err(|it| wrong(&it))?,
                "tails" => spec.tails = count(value, 0, 100).map_err(|it| wrong(&it))?,
                "congestion" => spec.congestion = number(value, 0.0, 0.5).map_err(|it| wrong(&it))?,
                "dips" => spec.dips = number(value, 0.0, 1.0).map_err(|it| wrong(&it))?,
                key if KEYS.contains(&key) => {
                    faults.push((key.to_owned(), value.to_owned(), part.to_owned()));
                }
                key => return Err(format!("`{key}` is not known; {}", instead(key))),
            }
        }
        for (key, value, part) in faults {
            spec.fault(&key, &value).map_err(|it| format!("`{part}`: {it}"))?;
        }
        Ok(spec)
    }

    fn fault(&mut self, key: &str, value: &str) -> Result<(), String> {
        let mut parts = value.split(':');
        let first = parts.next().unwrap_or_default();
        let rest: Vec<&str> = parts.collect();
        let form = FORMS.iter().find(|it| it.0 == key).map_or("", |it| it.1);
        if let Some(more) = rest.get(form.matches(':').count()..).filter(|it| !it.is_empty()) {
            return Err(format!("`:{}` is too much; the form is {form}", more.join(":")));
        }
        let share = |at: usize| {
            number(rest.get(at).ok_or("a share after `:` is missing, as in node003:0.8")?, 0.0, 1.0)
        };
        match key {
            "slow" => {
                let it = (self.host(first)?, share(0)?);
                self.slow.push(it);
            }
            "local" => {
                let it = (self.host(first)?, share(0)?);
                self.local.push(it);
            }
            "flaky" => {
                let it = (self.host(first)?, share(0)?, share(1)?);
                self.flaky.push(it);
            }
            "link" => {
                let (one, other) =
                    first.split_once('-').ok_or("two machines are needed, as in node003-node017:0.5")?;
                let it = (self.host(one)?, self.host(other)?, share(0)?);
                if it.0 == it.1 {
                    return Err("a link joins two machines".to_owned());
                }
                self.link.push(it);
            }
            "loss" => {
                let (one, other) = first.split_once('-').unwrap_or((first, first));
                let it = (self.host(one)?, self.host(other)?, share(0)?);
                self.loss.push(it);
            }
            "nic" => {
                let nic =
                    count(rest.first().ok_or("the NIC is missing, as in node003:5:0.0")?, 0, self.nics - 1)?;
                let it = (self.host(first)?, nic, share(1)?);
                self.nic.push(it);
            }
            "rail" => {
                let it = (count(first, 0, self.nics - 1)?, share(0)?);
                self.rail.push(it);
            }
            "tier" => {
                if self.leaf == 0 {
                    return Err("`leaf=N`, the machines under one switch, is missing".to_owned());
                }
                let last = (self.nodes - 1) / self.leaf;
                let (nodes, leaf) = (self.nodes, self.leaf);
                if last == 0 {
                    return Err(format!(
                        "all {nodes} machines are under one switch with leaf={leaf}, and nothing crosses it; give a smaller leaf or more nodes"
                    ));
                }
                let tier = count(first, 0, last).map_err(|_| {
                    format!("nodes={nodes} and leaf={leaf} make {} switches, 0 to {last}", last + 1)
                })?;
                let it = (tier, share(0)?);
                self.tier.push(it);
            }
            _ => {
                let it = self.host(first)?;
                self.dead.push(it);
            }
        }
        Ok(())
    }

    /// `node007` or `7`.
    fn host(&self, name: &str) -> Result<Host, String> {
        let digits = name.trim().trim_start_matches(|it: char| it.is_ascii_alphabetic());
        let number: usize = digits
            .parse()
            .map_err(|_| format!("`{name}` is not a machine; they are node000, node001, ..."))?;
        if number >= self.nodes {
            return Err(format!("there are {} machines, node000 to node{:03}", self.nodes, self.nodes - 1));
        }
        Ok(Host(number))
    }
}

/// The key that was meant, or all of them.
fn instead(key: &str) -> String {
    let near = match key {
        "fail" | "failed" | "down" | "broken" => Some("dead"),
        _ => {
            let alike = KEYS.iter().map(|it| (strsim::jaro(it, key), *it)).max_by(|a, b| a.0.total_cmp(&b.0));
            alike.filter(|it| it.0 >= ALIKE).map(|it| it.1)
        }
    };
    near.map_or_else(|| format!("the keys are {}", KEYS.join(", ")), |it| format!("did you mean `{it}`?"))
}

fn count(text: &str, least: usize, most: usize) -> Result<usize, String> {
    let number: usize = text.trim().parse().map_err(|_| "a whole number is needed".to_owned())?;
    if (least..=most).contains(&number) {
        Ok(number)
    } else {
        Err(format!("a number from {least} to {most} is needed"))
    }
}

/// `0.8` or `80%`.
fn number(text: &str, least: f64, most: f64) -> Result<f64, String> {
    let text = text.trim();
    let (digits, scale) = text.strip_suffix('%').map_or((text, 1.0), |it| (it, 0.01));
    let number: f64 = digits.trim().parse().map_err(|_| "a number is needed".to_owned())?;
    let number = number * scale;
    if (least..=most).contains(&number) {
        Ok(number)
    } else {
        Err(format!("a number from {least} to {most} is needed"))
    }
}

#[cfg(test)]
mod tests {
    use super::Spec;
    use crate::fleet::Host;

    #[test]
    fn reads_what_it_documents() {
        let it = Spec::read(
            "nodes=100,slow=node037:0.8,noise=2%,link=3-17:0.5,nic=node005:3:0,flaky=node012:0.6:30%,loss=node040:2%,loss=1-2:1%",
        )
        .unwrap();
        assert_eq!((it.nodes, it.noise), (100, 0.02));
        assert_eq!(it.slow, [(Host(37), 0.8)]);
        assert_eq!(it.link, [(Host(3), Host(17), 0.5)]);
        assert_eq!(it.nic, [(Host(5), 3, 0.0)]);
        assert_eq!(it.flaky, [(Host(12), 0.6, 0.3)]);
        assert_eq!(it.loss, [(Host(40), Host(40), 0.02), (Host(1), Host(2), 0.01)]);
    }

    #[test]
    fn names_what_is_wrong() {
        for (text, says) in [
            ("nodes=1", "from 2"),
            ("nods=3", "did you mean `nodes`"),
            ("slow=node099:0.5", "there are 16 machines"),
            ("slow=node001", "a share"),
            ("tier=0:0.5", "leaf"),
            ("noise=9", "from 0 to 0.5"),
            ("slow", "`=`"),
            ("slow=node1:0.8:3", "`slow=node1:0.8:3`: `:3` is too much; the form is slow=MACHINE:SHARE"),
            ("dead=node1:0.8", "`:0.8` is too much; the form is dead=MACHINE"),
            ("flaky=1:0.6:50%:2:3", "`:2:3` is too much"),
            ("nodes=8,nodes=9", "`nodes=9`: `nodes` is given twice"),
            ("seed=1,nodes=8,seed=1", "`seed=1`: `seed` is given twice"),
            ("", "the keys are nodes, rate"),
            ("nodes=16,fail=node001", "did you mean `dead`"),
            ("quux=1", "the keys are nodes, rate"),
            ("nodes=16,leaf=16,tier=9:0.6", "under one switch with leaf=16"),
            ("nodes=32,leaf=16,tier=9:0.6", "make 2 switches, 0 to 1"),
        ] {
            let error = Spec::read(text).unwrap_err();
            assert!(error.contains(says), "{text}: {error}");
        }
    }
}
