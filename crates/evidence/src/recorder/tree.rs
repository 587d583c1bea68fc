//! Values of a dump: numbers, texts, lists and maps, whatever format they were written in.

/// The values of one document. They are held by number, so that a value that a document uses twice is held once.
#[derive(Debug, Default)]
pub(super) struct Tree {
    nodes: Vec<Node>,
}

#[derive(Debug, PartialEq)]
pub(super) enum Node {
    Null,
    Bool(bool),
    Integer(i64),
    Float(f64),
    Text(Box<str>),
    List(Vec<u32>),
    /// Keys and values.
    Map(Vec<(u32, u32)>),
}

/// The number of a value.
pub(super) type Index = u32;

impl Tree {
    /// More values than the largest dump has: 2,000 entries of about 100 values, many times over.
    const LIMIT: usize = 20_000_000;

    pub(super) fn add(&mut self, node: Node) -> Result<Index, String> {
        if self.nodes.len() >= Self::LIMIT {
            return Err(format!("has more than {} values", Self::LIMIT));
        }
        self.nodes.push(node);
        u32::try_from(self.nodes.len() - 1).map_err(|error| error.to_string())
    }

    pub(super) fn node_mut(&mut self, index: Index) -> Option<&mut Node> {
        self.nodes.get_mut(index as usize)
    }

    pub(super) fn value(&self, index: Index) -> Value<'_> {
        Value { tree: self, node: self.nodes.get(index as usize).unwrap_or(&Node::Null) }
    }
}

/// A value of a tree.
#[derive(Debug, Clone, Copy)]
pub(super) struct Value<'a> {
    tree: &'a Tree,
    node: &'a Node,
}

impl<'a> Value<'a> {
    /// The value of a key of a map.
    pub(super) fn get(self, name: &str) -> Option<Self> {
        self.pairs().find(|(key, _)| key.text() == Some(name)).map(|(_, value)| value)
    }

    /// The keys and values of a map; nothing for another value.
    pub(super) fn pairs(self) -> impl Iterator<Item = (Self, Self)> {
        let pairs = if let Node::Map(pairs) = self.node { pairs.as_slice() } else { &[] };
        pairs.iter().map(move |&(key, value)| (self.tree.value(key), self.tree.value(value)))
    }

    /// The values of a list; nothing for another value.
    pub(super) fn items(self) -> impl Iterator<Item = Self> {
        let items = if let Node::List(items) = self.node { items.as_slice() } else { &[] };
        items.iter().map(move |&it| self.tree.value(it))
    }

    pub(super) fn is_map(self) -> bool {
        matches!(self.node, Node::Map(_))
    }

    pub(super) fn text(self) -> Option<&'a str> {
        if let Node::Text(text) = self.node { Some(text) } else { None }
    }

    pub(super) fn bool(self) -> Option<bool> {
        if let Node::Bool(it) = self.node { Some(*it) } else { None }
    }

    /// A whole number, also one written as text.
    pub(super) fn integer(self) -> Option<i64> {
        match self.node {
            Node::Integer(it) => Some(*it),
            Node::Text(text) => text.parse().ok(),
            Node::Bool(_) | Node::Null | Node::Float(_) | Node::List(_) | Node::Map(_) => None,
        }
    }
}
