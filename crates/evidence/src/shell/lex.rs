//! The words and operators of a script.

use crate::yaml::Trouble;

/// A word as it is written, quotes and `$` included, and its line.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Raw {
    pub(super) text: String,
    pub(super) line: usize,
}

/// A text after `<<WORD`.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Here {
    pub(super) text: String,
    pub(super) line: usize,
    /// Whether variables in it are filled in.
    pub(super) expands: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Token {
    Word(Raw),
    /// `;`, `&`, a line end.
    End,
    /// `;;`
    ArmEnd,
    And,
    Or,
    Pipe,
    Open,
    Close,
    Test(Vec<Raw>),
    Here(Here),
    /// `> file`
    Target(Raw),
}

/// The most words of a script.
const MOST: usize = 200_000;
/// The tokens of a script that begins at a line of its file.
pub(super) fn tokens(text: &str, first_line: usize) -> Result<Vec<Token>, Trouble> {
    Lexer { bytes: text.as_bytes(), text, at: 0, line: first_line, pending: Vec::new() }.all()
}

struct Lexer<'a> {
    bytes: &'a [u8],
    text: &'a str,
    at: usize,
    line: usize,
    /// Texts after `<<` that begin at the next line: the token they fill, the word that ends them, whether tabs are cut.
    pending: Vec<(usize, String, bool)>,
}

impl Lexer<'_> {
    fn peek(&self, ahead: usize) -> u8 {
        self.bytes.get(self.at + ahead).copied().unwrap_or(0)
    }

    fn all(mut self) -> Result<Vec<Token>, Trouble> {
        let mut tokens = Vec::new();
        while self.at < self.bytes.len() {
            if tokens.len() > MOST {
                return Err(self.trouble(format!("has more than {MOST} words")));
            }
            match self.peek(0) {
                b' ' | b'\t' | b'\r' => self.at += 1,
                b'\\' if self.peek(1) == b'\n' => self.skip_line_end(2),
                b'\\' if self.peek(1) == b'\r' && self.peek(2) == b'\n' => self.skip_line_end(3),
                b'\n' => {
                    self.skip_line_end(1);
                    tokens.push(Token::End);
                    self.take_here(&mut tokens);
                }
                b'#' => {
                    while self.at < self.bytes.len() && self.peek(0) != b'\n' {
                        self.at += 1;
                    }
                }
                b';' if self.peek(1) == b';' => self.push(&mut tokens, Token::ArmEnd, 2),
                b';' => self.push(&mut tokens, Token::End, 1),
                b'&' if self.peek(1) == b'&' => self.push(&mut tokens, Token::And, 2),
                b'&' if self.peek(1) == b'>' => self.redirect(&mut tokens),
                b'&' => self.push(&mut tokens, Token::End, 1),
                b'|' if self.peek(1) == b'|' => self.push(&mut tokens, Token::Or, 2),
                b'|' => self.push(&mut tokens, Token::Pipe, 1),
                b'(' if self.peek(1) == b'(' => {
                    let line = self.line;
                    let raw = self.raw_parentheses();
                    tokens.push(Token::Test(vec![Raw { text: raw, line }]));
                }
                b'(' => self.push(&mut tokens, Token::Open, 1),
                b')' => self.push(&mut tokens, Token::Close, 1),
                b'<' | b'>' => self.redirect(&mut tokens),
                b'0'..=b'9' if matches!(self.peek(1), b'<' | b'>') => {
                    self.at += 1;
                    self.redirect(&mut tokens);
                }
                b'[' if self.peek(1) == b'[' && matches!(self.peek(2), b' ' | b'\t') => {
                    self.at += 2;
                    let words = self.test();
                    tokens.push(Token::Test(words));
                }
                _ => {
                    let word = self.word();
                    tokens.push(Token::Word(word));
                }
            }
        }
        Ok(tokens)
    }

    fn trouble(&self, text: String) -> Trouble {
        Trouble { line: self.line, column: 1, text }
    }

    fn push(&mut self, tokens: &mut Vec<Token>, token: Token, length: usize) {
        self.at += length;
        tokens.push(token);
    }

    fn skip_line_end(&mut self, length: usize) {
        self.at += length;
        self.line += 1;
    }

    /// `> file`, `2>&1`, `< file`, `<<EOT`, `<<< word`.
    fn redirect(&mut self, tokens: &mut Vec<Token>) {
        let begin = self.at;
        while matches!(self.peek(0), b'<' | b'>' | b'&' | b'|' | b'-') {
            self.at += 1;
        }
        let operator = self.text.get(begin..self.at).unwrap_or_default().to_owned();
        while matches!(self.peek(0), b' ' | b'\t') {
            self.at += 1;
        }
        if matches!(self.peek(0), b'\n' | b';' | b'(' | b')' | 0) {
            return;
        }
        let word = self.word();
        match operator.as_str() {
            "<<" | "<<-" => {
                let expands = !word.text.contains(['\'', '"', '\\']);
                let end = word.text.replace(['\'', '"', '\\'], "");
                self.pending.push((tokens.len(), end, operator == "<<-"));
                tokens.push(Token::Here(Here { text: String::new(), line: self.line + 1, expands }));
            }
            ">" | ">>" | ">|" | "&>" => tokens.push(Token::Target(word)),
            _ => {}
        }
    }

    fn take_here(&mut self, tokens: &mut [Token]) {
        for (token, end, tabs) in std::mem::take(&mut self.pending) {
            let begin = self.line;
            let mut body = String::new();
            while self.at < self.bytes.len() {
                let rest = self.text.get(self.at..).unwrap_or_default();
                let length = rest.find('\n').map_or(rest.len(), |it| it + 1);
                let line = rest.get(..length).unwrap_or_default();
                self.at += length;
                self.line += 1;
                let shown = if tabs { line.trim_start_matches('\t') } else { line };
                if shown.trim_end() == end {
                    break;
                }
                body.push_str(shown);
            }
            if let Some(Token::Here(here)) = tokens.get_mut(token) {
                (here.text, here.line) = (body, begin);
            }
        }
    }

    /// The words between `[[` and `]]`.
    fn test(&mut self) -> Vec<Raw> {
        let mut words = Vec::new();
        while self.at < self.bytes.len() {
            let line = self.line;
            let operator = match (self.peek(0), self.peek(1)) {
                (b' ' | b'\t' | b'\r', _) => {
                    self.at += 1;
                    continue;
                }
                (b'\\', b'\n') => {
                    self.skip_line_end(2);
                    continue;
                }
                (b'\n', _) => {
                    self.skip_line_end(1);
                    continue;
                }
                (b'&', b'&') => "&&",
                (b'|', b'|') => "||",
                (b'<', _) => "<",
                (b'>', _) => ">",
                (b'(', _) => "(",
                (b')', _) => ")",
                (b';' | b'&' | b'|', _) => break,
                _ => "",
            };
            let word = if operator.is_empty() {
                self.word()
            } else {
                self.at += operator.len();
                Raw { text: operator.to_owned(), line }
            };
            if word.text == "]]" {
                break;
            }
            words.push(word);
        }
        words
    }

    fn word(&mut self) -> Raw {
        let (begin, line) = (self.at, self.line);
        while self.at < self.bytes.len() {
            match self.peek(0) {
                b' ' | b'\t' | b'\r' | b'\n' | b';' | b'&' | b'|' | b'<' | b'>' | b')' => break,
                b'(' => {
                    // `NAME=( ... )` is a list; `name()` begins a function.
                    if self.bytes.get(begin..self.at).is_some_and(|it| it.ends_with(b"=")) {
                        self.parentheses();
                    } else {
                        break;
                    }
                }
                _ => self.unit(),
            }
        }
        if self.at == begin {
            self.at += 1;
        }
        // An open quote can lead beyond the end.
        self.at = self.at.min(self.bytes.len());
        while !self.text.is_char_boundary(self.at) {
            self.at += 1;
        }
        Raw { text: self.text.get(begin..self.at).unwrap_or_default().to_owned(), line }
    }

    fn step(&mut self) {
        if self.peek(0) == b'\n' {
            self.line += 1;
        }
        self.at += 1;
    }

    /// One character, or what quotes, braces or parentheses hold together.
    fn unit(&mut self) {
        match (self.peek(0), self.peek(1)) {
            (b'\\', _) => {
                self.step();
                self.step();
            }
            (b'\'', _) => {
                self.step();
                while self.at < self.bytes.len() && self.peek(0) != b'\'' {
                    self.step();
                }
                self.at += 1;
            }
            (b'"', _) => {
                self.step();
                while self.at < self.bytes.len() && self.peek(0) != b'"' {
                    match (self.peek(0), self.peek(1)) {
                        (b'\\', _) => {
                            self.step();
                            self.step();
                        }
                        (b'$', b'(' | b'{') | (b'`', _) => self.unit(),
                        _ => self.step(),
                    }
                }
                self.at += 1;
            }
            (b'`', _) => {
                self.step();
                while self.at < self.bytes.len() && self.peek(0) != b'`' {
                    self.step();
                }
                self.at += 1;
            }
            (b'$', b'(') => {
                self.at += 1;
                self.parentheses();
            }
            (b'$', b'{') => {
                let mut depth = 0usize;
                while self.at < self.bytes.len() {
                    match self.peek(0) {
                        b'{' => depth += 1,
                        b'}' => depth -= 1,
                        _ => {}
                    }
                    self.step();
                    if depth == 0 && self.bytes.get(self.at - 1) == Some(&b'}') {
                        break;
                    }
                }
            }
            _ => self.step(),
        }
    }

    /// From `(` to the `)` that closes it; quotes inside are respected, comments are passed over.
    fn parentheses(&mut self) {
        let mut depth = 0usize;
        let mut fresh = true;
        while self.at < self.bytes.len() {
            match self.peek(0) {
                b'(' => {
                    depth += 1;
                    self.step();
                }
                b')' => {
                    depth -= 1;
                    self.step();
                    if depth == 0 {
                        return;
                    }
                }
                b'#' if fresh => {
                    while self.at < self.bytes.len() && self.peek(0) != b'\n' {
                        self.at += 1;
                    }
                    continue;
                }
                b'\\' | b'\'' | b'"' | b'`' => self.unit_flat(),
                _ => self.step(),
            }
            fresh = matches!(self.bytes.get(self.at.wrapping_sub(1)), Some(b' ' | b'\t' | b'\n'));
        }
    }

    /// Quotes only, so that nesting never recurses.
    fn unit_flat(&mut self) {
        let open = self.peek(0);
        self.step();
        if open == b'\\' {
            self.step();
            return;
        }
        while self.at < self.bytes.len() && self.peek(0) != open {
            if self.peek(0) == b'\\' && open == b'"' {
                self.step();
            }
            self.step();
        }
        self.at += 1;
    }

    /// `(( ... ))` as one text.
    fn raw_parentheses(&mut self) -> String {
        let begin = self.at;
        self.parentheses();
        self.text.get(begin..self.at.min(self.text.len())).unwrap_or_default().to_owned()
    }
}
