//! Version numbers of NCCL, plugins, libfabric and drivers.

use std::fmt;

/// A release number, compared by its three parts. Suffixes (`+cuda12.9`, `aws`, `-1`) are ignored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    /// The first number.
    pub major: u16,
    /// The second number.
    pub minor: u16,
    /// The third number, 0 if it is missing.
    pub patch: u16,
}

impl Version {
    /// A version from its parts.
    pub const fn new(major: u16, minor: u16, patch: u16) -> Self {
        Self { major, minor, patch }
    }

    /// Reads `2.27.3+cuda12.9`, `1.4.0aws`, `v1.16.2`, `2.1`. At least two numbers are needed.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let text = text.strip_prefix('v').unwrap_or(text);
        let mut parts = [0_u16; 3];
        let mut rest = text;
        let mut read = 0;
        for part in &mut parts {
            let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
            if digits == 0 {
                break;
            }
            *part = rest.get(..digits)?.parse().ok()?;
            read += 1;
            match rest.get(digits..).and_then(|it| it.strip_prefix('.')) {
                Some(more) => rest = more,
                None => break,
            }
        }
        (read >= 2).then_some(Self::new(parts[0], parts[1], parts[2]))
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

#[cfg(test)]
mod tests {
    use super::Version;

    #[test]
    fn reads_the_forms_met_in_logs() {
        for (text, want) in [
            ("2.27.3+cuda12.9", Some(Version::new(2, 27, 3))),
            ("1.4.0aws", Some(Version::new(1, 4, 0))),
            ("v1.16.2", Some(Version::new(1, 16, 2))),
            ("2.1", Some(Version::new(2, 1, 0))),
            ("2.30.7-1", Some(Version::new(2, 30, 7))),
            ("2", None),
            ("", None),
            ("99999.1", None),
        ] {
            assert_eq!(Version::parse(text), want, "{text}");
        }
    }

    #[test]
    fn orders_by_number_not_by_text() {
        assert!(Version::new(2, 9, 9) < Version::new(2, 27, 3));
    }
}
