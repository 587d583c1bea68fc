//! What `$` and quotes make of a word.

use super::lex::Raw;
use super::traced::Traced;
use super::{Shell, Value, arithmetic, is_name, joined};

/// What is being put together from one word.
#[derive(Default)]
struct Fields {
    done: Vec<Traced>,
    open: Traced,
    /// Whether there is an open field, be it an empty one in quotes.
    begun: bool,
}

impl Fields {
    fn push(&mut self, text: &str, line: usize, file: usize) {
        self.begun = true;
        self.open.push(text, line, file);
    }

    fn end(&mut self) {
        if std::mem::take(&mut self.begun) {
            self.done.push(std::mem::take(&mut self.open));
        }
    }

    /// Adds what a variable holds outside of quotes: blanks separate fields.
    fn split(&mut self, text: &Traced) {
        let mut begin = None;
        for (at, letter) in text.text.char_indices().chain([(text.text.len(), ' ')]) {
            match (letter.is_whitespace(), begin) {
                (true, Some(from)) => {
                    self.begun = true;
                    self.open.append(&text.part(from, at));
                    begin = None;
                    if at < text.text.len() {
                        self.end();
                    }
                }
                (true, None) if at < text.text.len() => self.end(),
                (false, None) => begin = Some(at),
                _ => {}
            }
        }
    }
}

/// How a text is read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// A word of a command: blanks in variables separate words.
    Word,
    /// The value of an assignment.
    Text,
    /// Inside double quotes, or after `<<`.
    Quoted,
}

impl Shell<'_, '_> {
    /// The words that a word becomes.
    pub(super) fn expand(&self, raw: &Raw) -> Vec<Traced> {
        let mut fields = Fields::default();
        self.take(&raw.text, raw.line, Mode::Word, &mut fields, 0);
        fields.end();
        fields.done
    }

    /// The text that a word becomes, blanks and all.
    pub(super) fn expand_text(&self, raw: &Raw) -> Traced {
        let mut fields = Fields::default();
        self.take(&raw.text, raw.line, Mode::Text, &mut fields, 0);
        fields.open
    }

    pub(super) fn expand_here(&self, text: &str, line: usize) -> Traced {
        let mut fields = Fields::default();
        self.take(text, line, Mode::Quoted, &mut fields, 0);
        fields.open
    }

    fn take(&self, text: &str, first_line: usize, mode: Mode, fields: &mut Fields, depth: usize) {
        let own = self.file() + 1;
        let mut line = first_line;
        let mut rest = text;
        let mut quoted = false;
        while let Some(letter) = rest.chars().next() {
            let inside = quoted || mode == Mode::Quoted;
            let length = letter.len_utf8();
            let after = rest.get(length..).unwrap_or_default();
            match letter {
                '\'' if !inside => {
                    let end = after.find('\'').unwrap_or(after.len());
                    let inner = after.get(..end).unwrap_or_default();
                    fields.push("", line, own);
                    for part in inner.split_inclusive('\n') {
                        fields.push(part, line, own);
                        line += usize::from(part.ends_with('\n'));
                    }
                    rest = after.get(end + 1..).unwrap_or_default();
                }
                '"' if mode != Mode::Quoted => {
                    quoted = !quoted;
                    fields.push("", line, own);
                    rest = after;
                }
                '\\' => {
                    let next = after.chars().next();
                    rest = after.get(next.map_or(0, char::len_utf8)..).unwrap_or_default();
                    match next {
                        Some('\n') => line += 1,
                        Some(next) if inside && !matches!(next, '$' | '`' | '"' | '\\') => {
                            fields.push(&format!("\\{next}"), line, own);
                        }
                        Some(next) => fields.push(next.encode_utf8(&mut [0; 4]), line, own),
                        None => fields.push("\\", line, own),
                    }
                }
                '$' => {
                    let used = self.dollar(rest, line, mode, inside, fields, depth);
                    line += rest.get(..used).unwrap_or_default().matches('\n').count();
                    rest = rest.get(used..).unwrap_or_default();
                }
                '`' => {
                    let end = after.find('`').map_or(rest.len(), |it| it + 2);
                    fields.push(rest.get(..end).unwrap_or_default(), line, own);
                    rest = rest.get(end..).unwrap_or_default();
                }
                '\n' => {
                    fields.push("\n", line, own);
                    line += 1;
                    rest = after;
                }
                _ => {
                    fields.push(rest.get(..length).unwrap_or_default(), line, own);
                    rest = after;
                }
            }
        }
    }

    /// What begins with `$`; how many bytes it is.
    fn dollar(
        &self,
        rest: &str,
        line: usize,
        mode: Mode,
        inside: bool,
        fields: &mut Fields,
        depth: usize,
    ) -> usize {
        let own = self.file() + 1;
        let after = rest.get(1..).unwrap_or_default();
        if let Some(inner) = after.strip_prefix("((")
            && let Some(end) = inner.find("))")
        {
            // The last of several closing parentheses.
            let mut end = end;
            while inner.as_bytes().get(end + 2) == Some(&b')') {
                end += 1;
            }
            let used = end + 5;
            let text = inner.get(..end).unwrap_or_default();
            let mut filled = Fields::default();
            self.take(text, line, Mode::Quoted, &mut filled, depth + 1);
            let value = arithmetic::evaluate(&filled.open.text, &|name| {
                self.variables.get(name).map(|it| joined(it).text)
            });
            match value {
                Some(value) => fields.push(&value.to_string(), line, own),
                None => fields.push(rest.get(..used).unwrap_or_default(), line, own),
            }
            return used;
        }
        if after.starts_with('(') {
            let used = 1 + closed(after, '(', ')');
            fields.push(rest.get(..used).unwrap_or_default(), line, own);
            return used;
        }
        if after.starts_with('{') {
            let used = 1 + closed(after, '{', '}');
            let written = rest.get(..used).unwrap_or_default();
            let inner = written.get(2..used.saturating_sub(1)).unwrap_or_default();
            if !self.braces(inner, line, mode, inside, fields, depth) {
                fields.push(written, line, own);
            }
            return used;
        }
        let length = after.bytes().take_while(|it| *it == b'_' || it.is_ascii_alphanumeric()).count();
        // `$1` is one digit.
        let length = if after.starts_with(|it: char| it.is_ascii_digit()) { 1 } else { length };
        let name = after.get(..length).unwrap_or_default();
        let written = rest
            .get(..1 + length.max(usize::from(after.starts_with(['@', '#', '*', '?', '$', '!']))))
            .unwrap_or("$");
        match self.variables.get(name) {
            Some(Value::Text(value)) => add(value, inside || mode != Mode::Word, fields),
            Some(Value::List(items)) => {
                if let Some(first) = items.first() {
                    add(first, inside || mode != Mode::Word, fields);
                }
            }
            None => fields.push(written, line, own),
        }
        written.len()
    }

    /// What stands in `${...}`; whether it is understood.
    fn braces(
        &self,
        inner: &str,
        line: usize,
        mode: Mode,
        inside: bool,
        fields: &mut Fields,
        depth: usize,
    ) -> bool {
        let length = inner.bytes().take_while(|it| *it == b'_' || it.is_ascii_alphanumeric()).count();
        let (name, form) = inner.split_at(length);
        if depth > 16 || !(is_name(name) || name.bytes().all(|it| it.is_ascii_digit())) || name.is_empty() {
            return false;
        }
        let (form, index) = match form.strip_prefix('[').and_then(|it| it.split_once(']')) {
            Some((index, form)) => (form, Some(index)),
            None => (form, None),
        };
        let whole = inside || mode != Mode::Word;
        let value = self.variables.get(name);
        // `:` treats an empty value as none.
        let (operator, word) = match form.as_bytes() {
            [] => ("", ""),
            [b':', b'-' | b'=' | b'+', ..] => form.split_at(2),
            [b'-' | b'=' | b'+', ..] => form.split_at(1),
            _ => return false,
        };
        let empty = |it: &Value| operator.starts_with(':') && joined(it).text.is_empty();
        let value = value.filter(|it| !empty(it));
        match (operator, value) {
            ("+" | ":+", Some(_)) | ("-" | "=" | ":-" | ":=", None) => {
                let mut filled = Fields::default();
                self.take(word, line, if inside { Mode::Quoted } else { Mode::Text }, &mut filled, depth + 1);
                add(&filled.open, whole, fields);
            }
            ("+" | ":+", None) => {}
            (_, None) => return false,
            (_, Some(Value::List(items))) => match index {
                // In quotes `${A[*]}` is one word, `${A[@]}` as many as there are items, joined to what stands before and after.
                Some(it @ ("@" | "*")) if mode == Mode::Word && !(inside && it == "*") => {
                    for (at, item) in items.iter().enumerate() {
                        if at > 0 {
                            fields.end();
                        }
                        add(item, whole, fields);
                    }
                }
                Some("@" | "*") => add(&joined(&Value::List(items.clone())), true, fields),
                index => {
                    let at = index.map_or(Some(0), |it| it.parse::<usize>().ok());
                    match at.and_then(|it| items.get(it)) {
                        Some(item) => add(item, whole, fields),
                        None => return false,
                    }
                }
            },
            (_, Some(Value::Text(text))) => add(text, whole, fields),
        }
        true
    }
}

fn add(value: &Traced, whole: bool, fields: &mut Fields) {
    if whole {
        fields.begun = true;
        fields.open.append(value);
    } else {
        fields.split(value);
    }
}

/// How many bytes from `open`, with which the text begins, to what closes it.
fn closed(text: &str, open: char, close: char) -> usize {
    let mut depth = 0usize;
    for (at, letter) in text.char_indices() {
        if letter == open {
            depth += 1;
        } else if letter == close {
            depth -= 1;
            if depth == 0 {
                return at + close.len_utf8();
            }
        }
    }
    text.len()
}
