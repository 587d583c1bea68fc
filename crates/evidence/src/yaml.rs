//! YAML and JSON as a tree in which every value has its position.
//!
//! A text is read once into [`Tree`]: nodes in one list, by number. An alias is the number of its node, so that
//! a hundred aliases of aliases cost a hundred numbers. Nothing is copied, nothing recurses.

mod indented;

use std::ops::Range;

use saphyr_parser::{Event, Parser, ScalarStyle, ScanError};

use indented::Indented;

/// All documents of a text.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Tree {
    nodes: Vec<Node>,
    /// The root of each document.
    pub documents: Vec<NodeId>,
}

/// The number of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(u32);

/// A value.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    /// What it is.
    pub kind: Kind,
    /// Where it is.
    pub span: Span,
}

/// What a value is.
#[derive(Debug, Clone, PartialEq)]
pub enum Kind {
    /// A text, a number, a boolean, nothing: as it was written, without quotes.
    Scalar {
        /// The text.
        text: Box<str>,
        /// Whether it is in quotes or in a block: then it is a text, whatever its form.
        quoted: bool,
    },
    /// A list.
    Sequence(Vec<NodeId>),
    /// Keys and values in their order.
    Mapping(Vec<(NodeId, NodeId)>),
}

/// A position in a text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Span {
    /// Bytes.
    pub range: Range<usize>,
    /// The line of its beginning, from 1.
    pub line: usize,
    /// The column of its beginning in characters, from 1.
    pub column: usize,
}

/// Why a text is not YAML.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trouble {
    /// The line, from 1.
    pub line: usize,
    /// The column in characters, from 1.
    pub column: usize,
    /// What is wrong, in a sentence without its full stop.
    pub text: String,
}

/// The most values one text is read with.
const MOST_NODES: usize = 2_000_000;
/// The deepest nesting.
const DEEPEST: usize = 200;
/// The longest text.
const LONGEST: usize = 64 << 20;

impl Tree {
    /// Reads a text.
    pub fn read(text: &str) -> Result<Self, Trouble> {
        if text.len() > LONGEST {
            let size = text.len() >> 20;
            return Err(Trouble {
                line: 1,
                column: 1,
                text: format!("{size} MiB of YAML; at most {} are read", LONGEST >> 20),
            });
        }
        let mut indented = Indented::new(text);
        loop {
            match Builder::new(&indented).read() {
                Ok(tree) => return Ok(tree),
                Err(Failure::Refused(trouble)) => return Err(trouble),
                Err(Failure::NoYaml(error)) => {
                    let (line, column) = indented.position(&error);
                    if !indented.cure(&error) {
                        return Err(Trouble { line, column, text: error.info().to_owned() });
                    }
                }
            }
        }
    }

    /// A node.
    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.0 as usize]
    }

    /// The text of a scalar.
    pub fn text(&self, id: NodeId) -> Option<&str> {
        match &self.node(id).kind {
            Kind::Scalar { text, .. } => Some(text),
            Kind::Sequence(_) | Kind::Mapping(_) => None,
        }
    }

    /// The items of a list; none for anything else.
    pub fn items(&self, id: NodeId) -> &[NodeId] {
        match &self.node(id).kind {
            Kind::Sequence(items) => items,
            Kind::Scalar { .. } | Kind::Mapping(_) => &[],
        }
    }

    /// The keys and values of a mapping; none for anything else.
    pub fn entries(&self, id: NodeId) -> &[(NodeId, NodeId)] {
        match &self.node(id).kind {
            Kind::Mapping(entries) => entries,
            Kind::Scalar { .. } | Kind::Sequence(_) => &[],
        }
    }

    /// The key and value of this name. Of several the last counts, as in Kubernetes.
    ///
    /// What is merged in by `<<` counts where the mapping itself does not have the name.
    pub fn entry(&self, id: NodeId, name: &str) -> Option<(NodeId, NodeId)> {
        let mut open = vec![id];
        // Merged mappings can merge others; no manifest goes this far.
        for _ in 0..64 {
            let id = open.pop()?;
            let own =
                |name: &str| self.entries(id).iter().rev().find(|it| self.text(it.0) == Some(name)).copied();
            if let Some(found) = own(name) {
                return Some(found);
            }
            if let Some((_, merged)) = own("<<") {
                // Of several the first counts, so it is read first.
                match &self.node(merged).kind {
                    Kind::Sequence(items) => open.extend(items.iter().rev()),
                    _ => open.push(merged),
                }
            }
        }
        None
    }

    /// The value of this name.
    pub fn get(&self, id: NodeId, name: &str) -> Option<NodeId> {
        self.entry(id, name).map(|it| it.1)
    }

    /// The value at the end of a path of names.
    pub fn at(&self, id: NodeId, path: &[&str]) -> Option<NodeId> {
        path.iter().try_fold(id, |id, name| self.get(id, name))
    }

    /// Whether a value is written as nothing: `null`, `~`, nothing at all.
    pub fn is_null(&self, id: NodeId) -> bool {
        matches!(&self.node(id).kind, Kind::Scalar { text, quoted: false } if matches!(&**text, "" | "~" | "null" | "Null" | "NULL"))
    }

    /// A boolean, as Kubernetes reads it.
    pub fn bool(&self, id: NodeId) -> Option<bool> {
        match &self.node(id).kind {
            Kind::Scalar { text, quoted: false } => match &**text {
                "true" | "True" | "TRUE" => Some(true),
                "false" | "False" | "FALSE" => Some(false),
                _ => None,
            },
            _ => None,
        }
    }

    /// A whole number, in quotes or not, as quantities are written.
    pub fn integer(&self, id: NodeId) -> Option<u64> {
        self.text(id)?.trim().parse().ok()
    }
}

/// Why a tree could not be built.
enum Failure {
    /// The parser's error.
    NoYaml(ScanError),
    /// An error of this reader.
    Refused(Trouble),
}

struct Builder<'a> {
    text: &'a Indented,
    tree: Tree,
    /// Open lists and mappings: the node and, in a mapping, the key that waits for its value.
    open: Vec<(NodeId, Option<NodeId>)>,
    /// The node of each anchor.
    anchors: Vec<Option<NodeId>>,
    /// Where each character begins; empty for ASCII, where a character is a byte.
    bytes: Vec<usize>,
}

impl<'a> Builder<'a> {
    fn new(text: &'a Indented) -> Self {
        let given = &text.text;
        let bytes = if given.is_ascii() { Vec::new() } else { given.char_indices().map(|it| it.0).collect() };
        Self { text, tree: Tree::default(), open: Vec::new(), anchors: Vec::new(), bytes }
    }

    fn read(mut self) -> Result<Tree, Failure> {
        for event in Parser::new_from_str(&self.text.text) {
            let (event, span) = event.map_err(Failure::NoYaml)?;
            let at = self.position(span);
            let failed = |text: String| Failure::Refused(Trouble { line: at.line, column: at.column, text });
            if self.tree.nodes.len() >= MOST_NODES {
                return Err(failed(format!("more than {MOST_NODES} values")));
            }
            match event {
                Event::Scalar(text, style, anchor, _) => {
                    let kind = Kind::Scalar { text: text.into(), quoted: style != ScalarStyle::Plain };
                    let id = self.add(kind, at, anchor);
                    self.attach(id);
                }
                Event::SequenceStart(anchor, _) => self.begin(Kind::Sequence(Vec::new()), at, anchor)?,
                Event::MappingStart(anchor, _) => self.begin(Kind::Mapping(Vec::new()), at, anchor)?,
                Event::SequenceEnd | Event::MappingEnd => {
                    if let Some((id, _)) = self.open.pop() {
                        let node = &mut self.tree.nodes[id.0 as usize];
                        node.span.range.end = node.span.range.end.max(at.range.start);
                        self.attach(id);
                    }
                }
                Event::Alias(anchor) => {
                    let known = self.anchors.get(anchor).copied().flatten();
                    // An alias of what is still open would make a circle.
                    let known = known.filter(|it| !self.open.iter().any(|open| open.0 == *it));
                    let id = known.ok_or_else(|| {
                        failed("an alias of a value that is not complete or not there".to_owned())
                    })?;
                    self.attach(id);
                }
                Event::Nothing
                | Event::StreamStart
                | Event::StreamEnd
                | Event::DocumentStart(_)
                | Event::DocumentEnd => {}
            }
        }
        Ok(self.tree)
    }

    fn position(&self, span: saphyr_parser::Span) -> Span {
        let byte = |index: usize| {
            let found = if self.bytes.is_empty() { Some(index) } else { self.bytes.get(index).copied() };
            found.unwrap_or(self.text.text.len()).min(self.text.text.len())
        };
        let (start, end) = (byte(span.start.index()), byte(span.end.index()));
        let line = byte(span.start.index().saturating_sub(span.start.col()));
        let column = self.text.column(line, span.start.col()) + 1;
        let (start, end) = (self.text.original(start), self.text.original(end));
        Span { range: start..end.max(start), line: span.start.line(), column }
    }

    fn add(&mut self, kind: Kind, span: Span, anchor: usize) -> NodeId {
        let id = NodeId(u32::try_from(self.tree.nodes.len()).unwrap_or(u32::MAX));
        self.tree.nodes.push(Node { kind, span });
        if anchor > 0 {
            if self.anchors.len() <= anchor {
                self.anchors.resize(anchor + 1, None);
            }
            self.anchors[anchor] = Some(id);
        }
        id
    }

    fn begin(&mut self, kind: Kind, at: Span, anchor: usize) -> Result<(), Failure> {
        if self.open.len() >= DEEPEST {
            let text = format!("nested more than {DEEPEST} deep");
            return Err(Failure::Refused(Trouble { line: at.line, column: at.column, text }));
        }
        let id = self.add(kind, at, anchor);
        self.open.push((id, None));
        Ok(())
    }

    /// Adds a finished node to the list or mapping around it.
    fn attach(&mut self, id: NodeId) {
        let Some((parent, key)) = self.open.last_mut() else {
            self.tree.documents.push(id);
            return;
        };
        match &mut self.tree.nodes[parent.0 as usize].kind {
            Kind::Sequence(items) => items.push(id),
            Kind::Mapping(entries) => match key.take() {
                Some(key) => entries.push((key, id)),
                None => *key = Some(id),
            },
            Kind::Scalar { .. } => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Tree;

    #[test]
    fn every_value_has_its_position() {
        let text = "kind: Pod\nspec:\n  # ä comment with ü\n  containers:\n  - name: \"x\"\n    image: pytorch\n---\nkind: Job\n";
        let tree = Tree::read(text).unwrap();
        assert_eq!(tree.documents.len(), 2);
        let root = tree.documents[0];
        let containers = tree.at(root, &["spec", "containers"]).unwrap();
        let image = tree.get(tree.items(containers)[0], "image").unwrap();
        let span = &tree.node(image).span;
        assert_eq!((&text[span.range.clone()], span.line, span.column), ("pytorch", 6, 12));
        assert_eq!(tree.text(tree.get(tree.documents[1], "kind").unwrap()), Some("Job"));
    }

    #[test]
    fn aliases_are_not_copied() {
        let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for n in 1..60 {
            let items = vec![format!("*a{}", n - 1); 10].join(", ");
            text.push_str(&format!("a{n}: &a{n} [{items}]\n"));
        }
        let tree = Tree::read(&text).unwrap();
        assert_eq!(tree.items(tree.get(tree.documents[0], "a59").unwrap()).len(), 10);
        assert!(tree.nodes.len() < 1000);
    }

    #[test]
    fn merged_mappings_count_where_there_is_nothing_else() {
        let text = "base: &base {a: 1, b: 2}\nmore: &more {c: 3, a: 9}\nuse:\n  <<: [*base, *more]\n  b: 4\n";
        let tree = Tree::read(text).unwrap();
        let used = tree.get(tree.documents[0], "use").unwrap();
        let number = |name| tree.get(used, name).and_then(|it| tree.integer(it));
        assert_eq!((number("a"), number("b"), number("c"), number("d")), (Some(1), Some(4), Some(3), None));
    }

    #[test]
    fn what_is_not_yaml_says_where() {
        for (text, line) in
            [("a: [1, 2\nb: 3\n", 2), ("a: b: c\n", 1), ("a: *nobody\n", 1), ("a:\n\t- b\n", 2)]
        {
            let trouble = Tree::read(text).unwrap_err();
            assert!(trouble.line >= line, "{text:?}: {trouble:?}");
        }
        for deep in ["[".repeat(100_000), "- ".repeat(100_000), "{a: ".repeat(100_000)] {
            assert!(Tree::read(&deep).is_err());
        }
        assert!(Tree::read(&"- ".repeat(250)).unwrap_err().text.contains("deep"));
        assert!(Tree::read("a: &a [*a]\n").is_err());
    }

    #[test]
    fn json_is_yaml() {
        let text =
            "{\n\t\"zero_optimization\": {\"stage\": 3, \"offload\": true},\n\t\"list\": [1, \"2\"]\n}\n";
        let tree = Tree::read(text).unwrap();
        let stage = tree.at(tree.documents[0], &["zero_optimization", "stage"]).unwrap();
        assert_eq!((tree.integer(stage), tree.node(stage).span.line), (Some(3), 2));
    }

    #[test]
    fn values_are_read_as_kubernetes_reads_them() {
        let tree = Tree::read("a: true\nb: \"true\"\nc: \"8\"\nd: ~\ne:\n").unwrap();
        let get = |name| tree.get(tree.documents[0], name).unwrap();
        assert_eq!(
            (tree.bool(get("a")), tree.bool(get("b")), tree.integer(get("c"))),
            (Some(true), None, Some(8))
        );
        assert!(tree.is_null(get("d")) && tree.is_null(get("e")));
    }
}
