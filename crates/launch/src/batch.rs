//! A batch script for Slurm that runs one program over the nodes it gets.

use std::ffi::OsString;

use crate::{Error, quote};

/// What the script asks Slurm for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BatchScript {
    /// How many nodes; none where [`Self::nodelist`] says it.
    pub nodes: Option<usize>,
    /// Certain nodes: `node[01-16]`.
    pub nodelist: Option<String>,
    /// The partition.
    pub partition: Option<String>,
    /// GPUs of each node.
    pub gpus: Option<usize>,
    /// Minutes after which Slurm ends the job.
    pub minutes: Option<u64>,
    /// The name of the job.
    pub name: String,
    /// Where Slurm writes what it prints; `%j` is the number of the job.
    pub output: Option<String>,
}

impl BatchScript {
    /// The script that runs this command on the first node; the command reaches the others with `srun`
    /// ([`Srun`](crate::Srun)).
    pub fn text(&self, command: &[OsString]) -> Result<String, Error> {
        let word = |what: &str, text: &str| {
            let fine = |it: char| it.is_ascii_alphanumeric() || "._-%/[],:=@+".contains(it);
            if text.is_empty() || text.starts_with('-') || !text.chars().all(fine) {
                return Err(Error::Start {
                    detail: format!("{what} {text:?} cannot stand in a batch script"),
                });
            }
            Ok(text.to_owned())
        };
        let mut lines = vec!["#!/bin/sh".to_owned()];
        let mut ask = |option: &str, value: String| lines.push(format!("#SBATCH --{option}={value}"));
        ask("job-name", word("the name", &self.name)?);
        if let Some(nodes) = self.nodes {
            ask("nodes", nodes.to_string());
        }
        if let Some(list) = &self.nodelist {
            ask("nodelist", word("the list of nodes", list)?);
        }
        if let Some(partition) = &self.partition {
            ask("partition", word("the partition", partition)?);
        }
        ask("ntasks-per-node", "1".to_owned());
        if let Some(gpus) = self.gpus {
            ask("gpus-per-node", gpus.to_string());
        }
        if let Some(minutes) = self.minutes {
            ask("time", minutes.to_string());
        }
        if let Some(output) = &self.output {
            ask("output", word("the output", output)?);
        }
        lines.push("#SBATCH --exclusive".to_owned());
        let words: Vec<String> = command.iter().map(quote).collect();
        if words.is_empty() || command.iter().any(|it| it.as_encoded_bytes().contains(&0)) {
            return Err(Error::Start {
                detail: "no command for the batch script, or a zero byte in it".to_owned(),
            });
        }
        lines.push(format!("exec {}", words.join(" ")));
        Ok(lines.join("\n") + "\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script() {
        let script = BatchScript {
            nodes: Some(16),
            partition: Some("gpu".to_owned()),
            gpus: Some(8),
            minutes: Some(40),
            name: "plumb-validate".to_owned(),
            output: Some("plumb-%j.out".to_owned()),
            ..BatchScript::default()
        };
        let command = ["/opt/plumb", "validate", "--slurm", "--budget", "30 m"].map(OsString::from);
        assert_eq!(
            script.text(&command),
            Ok("#!/bin/sh\n#SBATCH --job-name=plumb-validate\n#SBATCH --nodes=16\n#SBATCH --partition=gpu\n\
                #SBATCH --ntasks-per-node=1\n#SBATCH --gpus-per-node=8\n#SBATCH --time=40\n\
                #SBATCH --output=plumb-%j.out\n#SBATCH --exclusive\nexec /opt/plumb validate --slurm --budget '30 m'\n"
                .to_owned())
        );
        assert!(script.text(&[]).is_err());
        for wrong in ["a\n#SBATCH --uid=0", "", "-x", "a b", "$(x)"] {
            let script = BatchScript { partition: Some(wrong.to_owned()), ..script.clone() };
            assert!(script.text(&command).is_err(), "{wrong}");
        }
    }
}
