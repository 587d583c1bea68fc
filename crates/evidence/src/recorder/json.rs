//! JSON, as programs that print it by hand write it: a missing or an extra comma is passed over. NCCL 2.28.9 leaves a
//! comma out in the RAS status of a missing rank.

use super::tree::{Index, Node, Tree};

/// Deeper than any dump.
const DEPTH_LIMIT: usize = 64;

/// Reads one value; gives its tree and its value.
pub(super) fn parse(bytes: &[u8]) -> Result<(Tree, Index), String> {
    let mut parser = Parser { bytes, at: 0, tree: Tree::default() };
    let value = parser.value(0).map_err(|error| format!("the JSON at byte {} {error}", parser.at))?;
    Ok((parser.tree, value))
}

struct Parser<'a> {
    bytes: &'a [u8],
    at: usize,
    tree: Tree,
}

impl Parser<'_> {
    fn peek(&mut self) -> Option<u8> {
        while self.bytes.get(self.at).is_some_and(|it| it.is_ascii_whitespace() || *it == b',') {
            self.at += 1;
        }
        self.bytes.get(self.at).copied()
    }

    fn value(&mut self, depth: usize) -> Result<Index, String> {
        if depth > DEPTH_LIMIT {
            return Err("is nested too deeply".to_owned());
        }
        match self.peek().ok_or(ENDS)? {
            b'{' => {
                self.at += 1;
                let mut pairs = Vec::new();
                while self.peek().ok_or(ENDS)? != b'}' {
                    let key = self.string()?;
                    if self.peek() != Some(b':') {
                        return Err("has a key without a value".to_owned());
                    }
                    self.at += 1;
                    pairs.push((key, self.value(depth + 1)?));
                }
                self.at += 1;
                self.tree.add(Node::Map(pairs))
            }
            b'[' => {
                self.at += 1;
                let mut items = Vec::new();
                while self.peek().ok_or(ENDS)? != b']' {
                    items.push(self.value(depth + 1)?);
                }
                self.at += 1;
                self.tree.add(Node::List(items))
            }
            b'"' => self.string(),
            _ => self.word(),
        }
    }

    fn string(&mut self) -> Result<Index, String> {
        if self.peek() != Some(b'"') {
            return Err("has something else where a text is expected".to_owned());
        }
        let start = self.at;
        loop {
            self.at += 1;
            match self.bytes.get(self.at).ok_or(ENDS)? {
                b'\\' => self.at += 1,
                b'"' => break,
                _ => {}
            }
        }
        self.at += 1;
        let quoted = self.bytes.get(start..self.at).unwrap_or_default();
        let text: String = serde_json::from_slice(quoted)
            .unwrap_or_else(|_| String::from_utf8_lossy(quoted).trim_matches('"').to_owned());
        self.tree.add(Node::Text(text.into()))
    }

    fn word(&mut self) -> Result<Index, String> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let length = rest.iter().position(|it| !(it.is_ascii_alphanumeric() || b"+-._".contains(it)));
        let word = rest.get(..length.unwrap_or(rest.len())).unwrap_or_default();
        let text = std::str::from_utf8(word).unwrap_or_default();
        let node = match text {
            "true" => Node::Bool(true),
            "false" => Node::Bool(false),
            "null" => Node::Null,
            _ => match (text.parse(), text.parse()) {
                (Ok(integer), _) => Node::Integer(integer),
                (_, Ok(float)) => Node::Float(float),
                _ => return Err("has something that is not a value".to_owned()),
            },
        };
        self.at += word.len();
        self.tree.add(node)
    }
}

const ENDS: &str = "is cut off";

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn values_are_read_with_or_without_commas() {
        let text = br#"{"a": [1, -2.5, "x\n\"y\""], "b": {"c": 3 "d": true}, "e": null,}"#;
        let (tree, top) = parse(text).unwrap();
        let it = tree.value(top);
        assert_eq!(it.get("a").unwrap().items().nth(2).unwrap().text(), Some("x\n\"y\""));
        assert_eq!(it.get("b").unwrap().get("d").unwrap().bool(), Some(true));
    }

    #[test]
    fn what_is_not_json_is_an_error() {
        for text in ["", "{", "{\"a\"", "{\"a\": ", "[1, 2", "{1: 2}", "nothing", "\"\\", "\"\\\""] {
            assert!(parse(text.as_bytes()).is_err(), "{text}");
        }
        assert!(parse("[".repeat(100_000).as_bytes()).is_err());
    }
}
