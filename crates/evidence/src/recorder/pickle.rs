//! The part of Python's pickle format that holds plain data, protocols 2 to 5.
//!
//! A pickle is a program for a small machine with a stack. The instructions that name a class or call a function are
//! refused, so that nothing of a pickle can run: it is only read.
//! Source of the instructions: Python, `Lib/pickletools.py`.

use std::collections::HashMap;

use super::tree::{Index, Node, Tree};

/// Whether these bytes begin a pickle: `PROTO` and its number.
pub(super) fn begins(bytes: &[u8]) -> bool {
    matches!(bytes, [0x80, 2..=5, ..])
}

/// Reads a pickle; gives its tree and its value.
pub(super) fn parse(bytes: &[u8]) -> Result<(Tree, Index), String> {
    let mut machine = Machine {
        bytes,
        at: 0,
        tree: Tree::default(),
        stack: Vec::new(),
        marks: Vec::new(),
        memo: HashMap::new(),
    };
    loop {
        let start = machine.at;
        match machine.step() {
            Ok(None) => {}
            Ok(Some(value)) => return Ok((machine.tree, value)),
            Err(error) => return Err(format!("the pickle at byte {start} {error}")),
        }
    }
}

struct Machine<'a> {
    bytes: &'a [u8],
    at: usize,
    tree: Tree,
    stack: Vec<Index>,
    /// Heights of the stack.
    marks: Vec<usize>,
    memo: HashMap<u64, Index>,
}

impl Machine<'_> {
    /// Runs one instruction; gives the value at the end.
    fn step(&mut self) -> Result<Option<Index>, String> {
        let [code] = self.take::<1>()?;
        match code {
            b'.' => return self.pop().map(Some),
            // PROTO
            0x80 => {
                let [protocol] = self.take::<1>()?;
                if !(2..=5).contains(&protocol) {
                    return Err(format!("has protocol {protocol}; 2 to 5 are read"));
                }
            }
            // FRAME: the length is not needed.
            0x95 => {
                self.take::<8>()?;
            }
            b'(' => self.marks.push(self.stack.len()),
            b'N' => self.push(Node::Null)?,
            0x88 => self.push(Node::Bool(true))?,
            0x89 => self.push(Node::Bool(false))?,
            b'J' => {
                let it = i32::from_le_bytes(self.take()?);
                self.push(Node::Integer(it.into()))?;
            }
            b'K' => {
                let [it] = self.take::<1>()?;
                self.push(Node::Integer(it.into()))?;
            }
            b'M' => {
                let it = u16::from_le_bytes(self.take()?);
                self.push(Node::Integer(it.into()))?;
            }
            // LONG1, LONG4
            0x8a => {
                let [length] = self.take::<1>()?;
                self.long(u64::from(length))?;
            }
            0x8b => {
                let length = u32::from_le_bytes(self.take()?);
                self.long(u64::from(length))?;
            }
            b'G' => {
                let it = f64::from_be_bytes(self.take()?);
                self.push(Node::Float(it))?;
            }
            // BINUNICODE, SHORT_BINUNICODE, BINUNICODE8; BINBYTES, SHORT_BINBYTES; BINSTRING, SHORT_BINSTRING
            b'X' | b'B' | b'T' => {
                let length = u32::from_le_bytes(self.take()?);
                self.text(length.into())?;
            }
            0x8c | b'C' | b'U' => {
                let [length] = self.take::<1>()?;
                self.text(length.into())?;
            }
            0x8d => {
                let length = u64::from_le_bytes(self.take()?);
                self.text(length)?;
            }
            b']' => self.push(Node::List(Vec::new()))?,
            b'}' => self.push(Node::Map(Vec::new()))?,
            b')' => self.push(Node::List(Vec::new()))?,
            // TUPLE1, TUPLE2, TUPLE3
            0x85..=0x87 => {
                let count = usize::from(code - 0x84);
                let at = self.stack.len().checked_sub(count).ok_or(EMPTY)?;
                let items = self.stack.split_off(at);
                self.push(Node::List(items))?;
            }
            // TUPLE, LIST
            b't' | b'l' => {
                let items = self.since_mark()?;
                self.push(Node::List(items))?;
            }
            b'd' => {
                let pairs = pairs(&self.since_mark()?);
                self.push(Node::Map(pairs))?;
            }
            // APPEND, APPENDS
            b'a' => {
                let item = self.pop()?;
                self.extend_list(vec![item])?;
            }
            b'e' => {
                let items = self.since_mark()?;
                self.extend_list(items)?;
            }
            // SETITEM, SETITEMS
            b's' => {
                let value = self.pop()?;
                let key = self.pop()?;
                self.extend_map(vec![(key, value)])?;
            }
            b'u' => {
                let pairs = pairs(&self.since_mark()?);
                self.extend_map(pairs)?;
            }
            // BINPUT, LONG_BINPUT, MEMOIZE
            b'q' => {
                let [key] = self.take::<1>()?;
                self.remember(key.into())?;
            }
            b'r' => {
                let key = u32::from_le_bytes(self.take()?);
                self.remember(key.into())?;
            }
            0x94 => self.remember(self.memo.len() as u64)?,
            // BINGET, LONG_BINGET
            b'h' => {
                let [key] = self.take::<1>()?;
                self.recall(key.into())?;
            }
            b'j' => {
                let key = u32::from_le_bytes(self.take()?);
                self.recall(key.into())?;
            }
            b'0' => {
                self.pop()?;
            }
            b'1' => {
                self.since_mark()?;
            }
            b'2' => {
                let top = *self.stack.last().ok_or(EMPTY)?;
                self.stack.push(top);
            }
            other => {
                return Err(format!(
                    "has instruction 0x{other:02x}: only plain data is read, never a class or a call"
                ));
            }
        }
        Ok(None)
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], String> {
        self.slice(N as u64)?.try_into().map_err(|_| ENDS.to_owned())
    }

    fn slice(&mut self, length: u64) -> Result<&[u8], String> {
        let length = usize::try_from(length).map_err(|_| ENDS)?;
        let end = self.at.checked_add(length).ok_or(ENDS)?;
        let slice = self.bytes.get(self.at..end).ok_or(ENDS)?;
        self.at = end;
        Ok(slice)
    }

    fn push(&mut self, node: Node) -> Result<(), String> {
        let index = self.tree.add(node)?;
        self.stack.push(index);
        Ok(())
    }

    fn text(&mut self, length: u64) -> Result<(), String> {
        let text = String::from_utf8_lossy(self.slice(length)?).into();
        self.push(Node::Text(text))
    }

    /// A whole number of any length, the lowest byte first. One that does not fit is kept as a float.
    fn long(&mut self, length: u64) -> Result<(), String> {
        let bytes = self.slice(length)?;
        let negative = bytes.last().is_some_and(|it| it & 0x80 != 0);
        let node = if bytes.len() <= 8 {
            let mut all = [if negative { 0xff } else { 0 }; 8];
            for (to, from) in all.iter_mut().zip(bytes) {
                *to = *from;
            }
            Node::Integer(i64::from_le_bytes(all))
        } else {
            Node::Float(if negative { f64::NEG_INFINITY } else { f64::INFINITY })
        };
        self.push(node)
    }

    /// The top of the stack; what lies below a mark belongs to an earlier instruction.
    fn pop(&mut self) -> Result<Index, String> {
        if self.marks.last().is_some_and(|mark| *mark >= self.stack.len()) {
            return Err(EMPTY.to_owned());
        }
        self.stack.pop().ok_or_else(|| EMPTY.to_owned())
    }

    fn since_mark(&mut self) -> Result<Vec<Index>, String> {
        let mark = self.marks.pop().ok_or(EMPTY)?;
        if mark > self.stack.len() {
            return Err(EMPTY.to_owned());
        }
        Ok(self.stack.split_off(mark))
    }

    fn extend_list(&mut self, new: Vec<Index>) -> Result<(), String> {
        let top = *self.stack.last().ok_or(EMPTY)?;
        match self.tree.node_mut(top) {
            Some(Node::List(items)) => items.extend(new),
            _ => return Err("appends to what is not a list".to_owned()),
        }
        Ok(())
    }

    fn extend_map(&mut self, new: Vec<(Index, Index)>) -> Result<(), String> {
        let top = *self.stack.last().ok_or(EMPTY)?;
        match self.tree.node_mut(top) {
            Some(Node::Map(pairs)) => pairs.extend(new),
            _ => return Err("sets an item of what is not a dict".to_owned()),
        }
        Ok(())
    }

    fn remember(&mut self, key: u64) -> Result<(), String> {
        let top = *self.stack.last().ok_or(EMPTY)?;
        self.memo.insert(key, top);
        Ok(())
    }

    fn recall(&mut self, key: u64) -> Result<(), String> {
        let value = *self.memo.get(&key).ok_or("uses a value that it did not store")?;
        self.stack.push(value);
        Ok(())
    }
}

const ENDS: &str = "is cut off";
const EMPTY: &str = "takes more values than it has";

fn pairs(items: &[Index]) -> Vec<(Index, Index)> {
    items.as_chunks::<2>().0.iter().map(|&[key, value]| (key, value)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::tree::Value;
    use super::parse;

    #[test]
    fn plain_data_is_read() {
        // pickle.dumps({"a": [1, -2, 70000, 1 << 40], "b": ("x", None, True)}, protocol=2) and the same by protocol 5
        let two = b"\x80\x02}q\x00(X\x01\x00\x00\x00aq\x01]q\x02(K\x01J\xfe\xff\xff\xffJp\x11\x01\x00\x8a\x06\x00\x00\x00\x00\x00\x01eX\x01\x00\x00\x00bq\x03X\x01\x00\x00\x00xq\x04N\x88\x87q\x05u.";
        let five = b"\x80\x05\x95\x28\x00\x00\x00\x00\x00\x00\x00}\x94(\x8c\x01a\x94]\x94(K\x01J\xfe\xff\xff\xffJp\x11\x01\x00\x8a\x06\x00\x00\x00\x00\x00\x01e\x8c\x01b\x94\x8c\x01x\x94N\x88\x87\x94u.";
        for bytes in [&two[..], five] {
            let (tree, top) = parse(bytes).unwrap();
            let it = tree.value(top);
            let list: Vec<_> = it.get("a").unwrap().items().filter_map(Value::integer).collect();
            assert_eq!(list, [1, -2, 70_000, 1 << 40]);
            let tuple: Vec<_> = it.get("b").unwrap().items().collect();
            assert_eq!((tuple[0].text(), tuple[2].bool()), (Some("x"), Some(true)));
        }
    }

    #[test]
    fn a_call_is_refused() {
        // os.system("true")
        let bytes = b"\x80\x02cposix\nsystem\nq\x00X\x04\x00\x00\x00trueq\x01\x85q\x02Rq\x03.";
        let error = parse(bytes).unwrap_err();
        assert!(error.contains("at byte 2 has instruction 0x63"), "{error}");
    }

    #[test]
    fn every_beginning_is_an_error() {
        let bytes = b"\x80\x02}q\x00(X\x01\x00\x00\x00aq\x01]q\x02(K\x01K\x02eu.";
        assert!(parse(bytes).is_ok());
        for length in 0..bytes.len() {
            assert!(parse(&bytes[..length]).is_err(), "{length}");
        }
    }

    #[test]
    fn a_value_that_holds_itself_and_a_stack_that_is_empty() {
        // x = []; x.append(x)
        assert!(parse(b"\x80\x02]q\x00h\x00a.").is_ok());
        for bytes in [
            &b"\x80\x02e."[..],
            b"\x80\x02.",
            b"\x80\x02u.",
            b"\x80\x02(a.",
            b"\x80\x02h\x09.",
            b"\x80\x02K\x01(a.",
        ] {
            assert!(parse(bytes).is_err(), "{bytes:?}");
        }
    }
}
