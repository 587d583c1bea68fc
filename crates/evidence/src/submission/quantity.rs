//! Quantities of Kubernetes: `8`, `500m`, `64Mi`, `1.5Gi`, `2e3`.

/// A quantity, in its unit: bytes, CPUs, devices.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub struct Quantity(pub f64);

impl Quantity {
    /// Reads one. `None` for what Kubernetes would reject.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let units: [(&str, f64); 16] = [
            ("Ki", 1024.0),
            ("Mi", 1_048_576.0),
            ("Gi", 1_073_741_824.0),
            ("Ti", 1_099_511_627_776.0),
            ("Pi", 1_125_899_906_842_624.0),
            ("Ei", 1_152_921_504_606_846_976.0),
            ("n", 1e-9),
            ("u", 1e-6),
            ("m", 1e-3),
            ("k", 1e3),
            ("M", 1e6),
            ("G", 1e9),
            ("T", 1e12),
            ("P", 1e15),
            ("E", 1e18),
            ("", 1.0),
        ];
        let (digits, scale) =
            units.iter().find_map(|(unit, scale)| Some((text.strip_suffix(unit)?, *scale)))?;
        let plain =
            digits.bytes().all(|it| it.is_ascii_digit() || matches!(it, b'.' | b'e' | b'E' | b'+' | b'-'));
        let number = Some(digits).filter(|it| plain && !it.is_empty())?.parse::<f64>().ok()?;
        (number.is_finite() && number >= 0.0).then_some(Self(number * scale))
    }

    /// As a whole number.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is checked before")]
    pub fn whole(self) -> Option<u64> {
        (self.0.fract() == 0.0 && (0.0..9e15).contains(&self.0)).then_some(self.0 as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::Quantity;

    #[test]
    fn quantities_are_those_of_kubernetes() {
        for (text, value) in [
            ("8", 8.0),
            ("500m", 0.5),
            ("64Mi", 67_108_864.0),
            ("1.5Gi", 1_610_612_736.0),
            ("2e3", 2000.0),
            ("1E", 1e18),
        ] {
            assert_eq!(Quantity::parse(text), Some(Quantity(value)), "{text}");
        }
        for text in ["", "Gi", "-1", "8GB", "eight", "1 Gi", "inf", "nan", "0x10"] {
            assert_eq!(Quantity::parse(text), None, "{text}");
        }
        assert_eq!(Quantity::parse("0.5").and_then(Quantity::whole), None);
    }
}
