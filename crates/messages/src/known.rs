//! What is known about a printed text: its entry, its family, its class.

use crate::component::component;
use crate::entry::{Entry, Level, Outcome, Product};
use crate::family::{self, Class, Family, Reading};
use crate::matcher::{Hint, Match, find};

/// A text, looked up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Known<'t> {
    /// The entry that printed it, with its values.
    pub found: Option<Match<'t>>,
    /// The family it belongs to, with the value and the file that decide its meaning.
    pub reading: Option<Reading>,
    /// Which part of the product printed it.
    pub component: Option<&'static str>,
}

/// Looks up the text of a message, without the prefix of its line; `None` if no entry and no family has it.
pub fn look_up<'t>(text: &'t [u8], hint: Hint<'_>) -> Option<Known<'t>> {
    let found = find(text, hint);
    let location = str::from_utf8(hint.location).unwrap_or_default();
    let place = location.split(':').next().filter(|it| it.contains('.'));
    let file = place.or_else(|| found.as_ref().map(|it| it.entry.file).filter(|it| !it.is_empty()));
    let reading = str::from_utf8(text).ok().and_then(|it| family::reading(it, file));
    if found.is_none() && reading.is_none() {
        return None;
    }
    let product = found.as_ref().map_or(hint.product.unwrap_or(Product::Nccl), |it| it.entry.product);
    Some(Known { found, reading, component: file.and_then(|it| component(product, it)) })
}

impl Known<'_> {
    /// What kind of message it is. Without a family, the result of the place that prints it decides.
    pub fn class(&self) -> Option<Class> {
        let by_family = self.reading.as_ref().map(Reading::class);
        by_family.or_else(|| self.found.as_ref().and_then(|it| it.entry.class_by_result()))
    }
}

impl Entry {
    /// The family that it belongs to.
    pub fn family(&self) -> Option<&'static Family> {
        family::of(self.text, Some(self.file).filter(|it| !it.is_empty()))
    }

    /// Which part of the product prints it; `None` for macros of many files.
    pub fn component(&self) -> Option<&'static str> {
        component(self.product, self.file)
    }

    /// The class of a warning by what its place returns; `None` for ordinary lines. A warning whose place goes on is still one.
    pub fn class_by_result(&self) -> Option<Class> {
        if self.level == Level::Info {
            return None;
        }
        Some(match self.outcome {
            Outcome::Returns(4 | 5) => Class::Usage,
            Outcome::Returns(6) => Class::Consequence,
            Outcome::Returns(3) => Class::Internal,
            Outcome::Returns(_) | Outcome::Fails | Outcome::Continues => Class::Cause,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::look_up;
    use crate::entry::Level;
    use crate::family::Class;
    use crate::matcher::Hint;

    #[test]
    fn the_class_comes_from_the_family_or_from_the_result() {
        let class = |text: &str, location: &str| {
            let hint = Hint { product: None, level: Some(Level::Warn), location: location.as_bytes() };
            look_up(text.as_bytes(), hint).and_then(|it| it.class())
        };
        assert_eq!(class("Cuda failure 4 'driver shutting down'", "proxy.cc:7"), Some(Class::Consequence));
        assert_eq!(
            class("Could not find rev link for 1/2 -> 3/4", "graph/search.cc:7"),
            Some(Class::Internal)
        );
        assert_eq!(class("the moon", ""), None);
    }
}
