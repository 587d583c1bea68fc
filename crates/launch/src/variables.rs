//! Typed access to environment variables.

use crate::{Error, Launcher};

/// A larger number of ranks is taken for a mistake.
pub(crate) const MAX_RANKS: usize = 1 << 20;

/// The environment a rank was started with.
#[derive(Clone, Copy)]
pub(crate) struct Variables<'a>(pub(crate) &'a dyn Fn(&str) -> Option<String>);

impl Variables<'_> {
    /// The trimmed text of a variable; an empty variable counts as unset.
    pub(crate) fn text(&self, name: &str) -> Option<String> {
        let value = (self.0)(name)?;
        let value = value.trim();
        (!value.is_empty()).then(|| value.to_owned())
    }

    pub(crate) fn number(&self, name: &str) -> Result<Option<usize>, Error> {
        let Some(text) = self.text(name) else { return Ok(None) };
        match text.parse::<usize>() {
            Ok(number) if number <= MAX_RANKS && text.bytes().all(|it| it.is_ascii_digit()) => {
                Ok(Some(number))
            }
            _ => Err(Error::variable(name, &text, format!("a number from 0 to {MAX_RANKS}"))),
        }
    }

    /// A number that has to be set, because `found` is.
    pub(crate) fn required(
        &self,
        launcher: Launcher,
        found: &'static str,
        missing: &'static str,
    ) -> Result<usize, Error> {
        self.number(missing)?.ok_or(Error::Missing { launcher, found, missing })
    }

    pub(crate) fn port(&self, name: &str) -> Result<Option<u16>, Error> {
        let Some(text) = self.text(name) else { return Ok(None) };
        match text.parse::<u16>() {
            Ok(port) if port > 0 => Ok(Some(port)),
            _ => Err(Error::variable(name, &text, "a port from 1 to 65535")),
        }
    }
}

/// A port below the ephemeral range that every rank of a job computes from the job id.
pub(crate) fn port_from_job_id(job_id: &str) -> u16 {
    let hash = job_id.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let spread = (hash ^ (hash >> 32)) % 8192;
    20480 + u16::try_from(spread).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_checked_and_the_error_names_the_variable() {
        let env = |name: &str| Some(name.to_owned());
        let variables = Variables(&env);
        assert_eq!(variables.number("17"), Ok(Some(17)));
        assert_eq!(variables.number(" "), Ok(None));
        for wrong in ["-1", "+1", "1.5", "x", "99999999999999999999", "2000000"] {
            let error = variables.number(wrong).expect_err(wrong);
            assert!(error.to_string().starts_with(&format!("{wrong} is ")), "{error}");
        }
        assert!(variables.port("0").is_err() && variables.port("65536").is_err());
    }

    #[test]
    fn a_port_depends_on_the_job_only() {
        assert_eq!(port_from_job_id("slurm-1.0"), port_from_job_id("slurm-1.0"));
        assert_ne!(port_from_job_id("slurm-1.0"), port_from_job_id("slurm-2.0"));
        for job in 0..1000 {
            assert!((20480..28672).contains(&port_from_job_id(&format!("slurm-{job}.0"))));
        }
    }
}
