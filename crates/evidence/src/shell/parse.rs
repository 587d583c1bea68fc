//! A script as a tree of commands, before anything is filled in.

use super::lex::{Here, Raw, Token, tokens};
use crate::yaml::Trouble;

/// When a command runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum After {
    /// Whatever came before.
    Anything,
    /// If the command before succeeded: `&&`.
    Success,
    /// If it failed: `||`.
    Failure,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Step {
    pub(super) after: After,
    pub(super) node: Node,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Node {
    Command {
        words: Vec<Raw>,
        here: Option<Here>,
        target: Option<Raw>,
    },
    /// `[[ ... ]]` or `(( ... ))`, by its words.
    Test(Vec<Raw>),
    If {
        arms: Vec<(Vec<Step>, Vec<Step>)>,
        otherwise: Vec<Step>,
    },
    For {
        name: String,
        items: Vec<Raw>,
        body: Vec<Step>,
    },
    Case {
        word: Raw,
        arms: Vec<(Vec<Raw>, Vec<Step>)>,
    },
    Function {
        name: String,
        body: Vec<Step>,
    },
    Group(Vec<Step>),
    /// The body of `while` and `until`, which is not run.
    Loop,
}
/// The deepest nesting of `if`, `for`, functions and groups.
const DEEPEST: usize = 50;

/// Reads a script that begins at a line of its file.
pub(super) fn parse(text: &str, first_line: usize) -> Result<Vec<Step>, Trouble> {
    let mut parser = Parser { tokens: tokens(text, first_line)?, at: 0, depth: 0 };
    let mut steps = parser.block(&[])?;
    // What closes nothing is passed over: a script that cannot be understood whole is still read.
    while parser.at < parser.tokens.len() {
        parser.at += 1;
        steps.extend(parser.block(&[])?);
    }
    Ok(steps)
}
struct Parser {
    tokens: Vec<Token>,
    at: usize,
    depth: usize,
}

impl Parser {
    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.at)
    }

    fn keyword(&self) -> Option<&str> {
        match self.peek() {
            Some(Token::Word(word)) => Some(&word.text),
            _ => None,
        }
    }

    fn eat(&mut self, word: &str) -> bool {
        let found = self.keyword() == Some(word);
        self.at += usize::from(found);
        found
    }

    fn skip_ends(&mut self) {
        while matches!(self.peek(), Some(Token::End)) {
            self.at += 1;
        }
    }

    /// Commands up to one of these words, `;;` or `)`.
    fn block(&mut self, stop: &[&str]) -> Result<Vec<Step>, Trouble> {
        let mut steps = Vec::new();
        let mut after = After::Anything;
        loop {
            match self.peek() {
                None | Some(Token::ArmEnd | Token::Close) => return Ok(steps),
                Some(Token::End) => {
                    self.at += 1;
                    continue;
                }
                Some(Token::And | Token::Or) => {
                    after = if self.peek() == Some(&Token::And) { After::Success } else { After::Failure };
                    self.at += 1;
                    self.skip_ends();
                    continue;
                }
                // The right side of a pipe is a command of its own.
                Some(Token::Pipe) => {
                    self.at += 1;
                    continue;
                }
                _ => {}
            }
            if self.keyword().is_some_and(|it| stop.contains(&it)) {
                return Ok(steps);
            }
            let node = self.node()?;
            steps.push(Step { after: std::mem::replace(&mut after, After::Anything), node });
        }
    }

    fn node(&mut self) -> Result<Node, Trouble> {
        if self.depth >= DEEPEST {
            let line = match self.peek() {
                Some(Token::Word(word)) => word.line,
                _ => 1,
            };
            let text = format!("is nested more than {DEEPEST} deep");
            return Err(Trouble { line, column: 1, text });
        }
        self.depth += 1;
        let node = self.nested();
        self.depth -= 1;
        node
    }

    fn nested(&mut self) -> Result<Node, Trouble> {
        match self.peek() {
            Some(Token::Test(words)) => {
                let words = words.clone();
                self.at += 1;
                return Ok(Node::Test(words));
            }
            Some(Token::Open) => {
                self.at += 1;
                let body = self.block(&[])?;
                self.at += usize::from(self.peek() == Some(&Token::Close));
                return Ok(Node::Group(body));
            }
            _ => {}
        }
        match self.keyword() {
            Some("if") => {
                self.at += 1;
                return self.condition();
            }
            Some("for" | "select") => {
                self.at += 1;
                return self.repeated();
            }
            Some("while" | "until") => {
                self.at += 1;
                self.block(&["do"])?;
                self.eat("do");
                self.block(&["done"])?;
                self.eat("done");
                return Ok(Node::Loop);
            }
            Some("case") => {
                self.at += 1;
                return self.cases();
            }
            Some("{") => {
                self.at += 1;
                let body = self.block(&["}"])?;
                self.eat("}");
                return Ok(Node::Group(body));
            }
            Some("function") => self.at += 1,
            _ => {}
        }
        // `name() { ... }`
        if let (Some(Token::Word(name)), Some(Token::Open), Some(Token::Close)) =
            (self.peek(), self.tokens.get(self.at + 1), self.tokens.get(self.at + 2))
        {
            let name = name.text.clone();
            self.at += 3;
            self.skip_ends();
            let body = if self.eat("{") {
                let body = self.block(&["}"])?;
                self.eat("}");
                body
            } else {
                Vec::new()
            };
            return Ok(Node::Function { name, body });
        }
        Ok(self.command())
    }

    fn condition(&mut self) -> Result<Node, Trouble> {
        let mut arms = Vec::new();
        loop {
            let test = self.block(&["then"])?;
            self.eat("then");
            let body = self.block(&["elif", "else", "fi"])?;
            arms.push((test, body));
            if !self.eat("elif") {
                break;
            }
        }
        let otherwise = if self.eat("else") { self.block(&["fi"])? } else { Vec::new() };
        self.eat("fi");
        Ok(Node::If { arms, otherwise })
    }

    fn repeated(&mut self) -> Result<Node, Trouble> {
        let mut name = String::new();
        let mut items = Vec::new();
        if let Some(Token::Word(word)) = self.peek() {
            name.clone_from(&word.text);
            self.at += 1;
        } else if matches!(self.peek(), Some(Token::Test(_))) {
            self.at += 1;
        }
        if self.eat("in") {
            while let Some(Token::Word(word)) = self.peek() {
                items.push(word.clone());
                self.at += 1;
            }
        }
        self.skip_ends();
        self.eat("do");
        let body = self.block(&["done"])?;
        self.eat("done");
        Ok(Node::For { name, items, body })
    }

    fn cases(&mut self) -> Result<Node, Trouble> {
        let word = match self.peek() {
            Some(Token::Word(word)) => word.clone(),
            _ => Raw { text: String::new(), line: 1 },
        };
        self.at += 1;
        self.skip_ends();
        self.eat("in");
        let mut arms = Vec::new();
        loop {
            self.skip_ends();
            self.at += usize::from(self.peek() == Some(&Token::Open));
            let mut patterns = Vec::new();
            while let Some(Token::Word(_) | Token::Pipe) = self.peek() {
                if self.eat("esac") {
                    return Ok(Node::Case { word, arms });
                }
                if let Some(Token::Word(pattern)) = self.peek() {
                    patterns.push(pattern.clone());
                }
                self.at += 1;
            }
            if self.peek() != Some(&Token::Close) {
                return Ok(Node::Case { word, arms });
            }
            self.at += 1;
            let body = self.block(&["esac"])?;
            arms.push((patterns, body));
            self.at += usize::from(self.peek() == Some(&Token::ArmEnd));
        }
    }

    fn command(&mut self) -> Node {
        let (mut words, mut here, mut target) = (Vec::new(), None, None);
        loop {
            match self.peek() {
                Some(Token::Word(word)) => words.push(word.clone()),
                Some(Token::Here(it)) => here = Some(it.clone()),
                Some(Token::Target(it)) => target = Some(it.clone()),
                // A stray parenthesis belongs to the command.
                Some(Token::Open) => {}
                _ => break,
            }
            self.at += 1;
        }
        // Nothing that could be a command: pass over one token, so that reading always goes on.
        if words.is_empty() && here.is_none() && target.is_none() && self.peek().is_some() {
            self.at += 1;
        }
        Node::Command { words, here, target }
    }
}
