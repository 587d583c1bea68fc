//! Cases for tests.

use evidence::{Case, read_texts};

/// The case a text makes.
pub(crate) fn case(text: &str) -> Case {
    read_texts([("test.log", text.as_bytes())])
}
