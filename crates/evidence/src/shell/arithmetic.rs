//! Whole numbers in `$(( ... ))`.

/// The value, where every name in it has one. Python and Megatron write `1_000`; a shell does not, and neither harms.
pub(super) fn evaluate(text: &str, variable: &dyn Fn(&str) -> Option<String>) -> Option<i64> {
    let mut reader = Reader { rest: text, variable, depth: 0 };
    let value = reader.sum()?;
    reader.rest.trim().is_empty().then_some(value)
}

struct Reader<'a> {
    rest: &'a str,
    variable: &'a dyn Fn(&str) -> Option<String>,
    depth: usize,
}

impl Reader<'_> {
    fn eat(&mut self, operator: &str) -> bool {
        let trimmed = self.rest.trim_start();
        match trimmed.strip_prefix(operator) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn sum(&mut self) -> Option<i64> {
        let mut value = self.product()?;
        loop {
            if self.eat("+") {
                value = value.checked_add(self.product()?)?;
            } else if self.eat("-") {
                value = value.checked_sub(self.product()?)?;
            } else {
                return Some(value);
            }
        }
    }

    fn product(&mut self) -> Option<i64> {
        let mut value = self.one()?;
        loop {
            if self.eat("**") {
                value = value.checked_pow(u32::try_from(self.one()?).ok()?)?;
            } else if self.eat("*") {
                value = value.checked_mul(self.one()?)?;
            } else if self.eat("/") {
                value = value.checked_div(self.one()?)?;
            } else if self.eat("%") {
                value = value.checked_rem(self.one()?)?;
            } else {
                return Some(value);
            }
        }
    }

    fn one(&mut self) -> Option<i64> {
        if self.depth > 50 {
            return None;
        }
        self.depth += 1;
        let value = self.inner();
        self.depth -= 1;
        value
    }

    fn inner(&mut self) -> Option<i64> {
        if self.eat("-") {
            return self.one()?.checked_neg();
        }
        if self.eat("(") {
            let value = self.sum()?;
            return self.eat(")").then_some(value);
        }
        let rest = self.rest.trim_start();
        let length = rest.bytes().take_while(|it| *it == b'_' || it.is_ascii_alphanumeric()).count();
        let (word, rest) = rest.split_at(length);
        self.rest = rest;
        if word.starts_with(|it: char| it.is_ascii_digit()) {
            return word.replace('_', "").parse().ok();
        }
        (self.variable)(word)?.trim().replace('_', "").parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::evaluate;

    #[test]
    fn numbers_are_added_up_as_a_shell_does() {
        let known = |name: &str| (name == "A").then(|| "8".to_owned());
        for (text, value) in [
            ("1 + 2*3", Some(7)),
            ("(1+2) * A", Some(24)),
            ("A/(2*1)", Some(4)),
            ("2**3 % 3", Some(2)),
            ("-A", Some(-8)),
            ("1_000", Some(1000)),
            ("B", None),
            ("1/0", None),
            ("9223372036854775807 + 1", None),
            ("1 2", None),
        ] {
            assert_eq!(evaluate(text, &known), value, "{text}");
        }
        assert_eq!(evaluate(&"(".repeat(10_000), &known), None);
    }
}
