//! Keys, tokens, passwords, mail addresses, account numbers.
//!
//! What opens a door (a key, a token, a password) is in no output: [`certain`]. Whom an answer is about (a user, a mail address, an account)
//! is replaced with `--redact`: [`secret`].

use super::names::{Hit, Kind};
use super::paths::{is_common_user, is_url_limit};
use super::scan::{after_last, before, byte, is_label, is_number, is_word, listed, run};

pub(super) fn secret(text: &str, at: usize) -> Option<Hit> {
    let personal = || {
        let end = assigned_end(text, at, is_user_key)
            .or_else(|| mail_end(text, at))
            .or_else(|| account_end(text, at))?;
        hit(text, at, end)
    };
    certain(text, at).or_else(personal)
}

/// A secret by its form, by the name that it is assigned to, or in the login of a URL.
pub(super) fn certain(text: &str, at: usize) -> Option<Hit> {
    let end = token_end(text, at)
        .or_else(|| block_end(text, at))
        .or_else(|| assigned_end(text, at, is_secret_key))
        .or_else(|| login_end(text, at))?;
    hit(text, at, end)
}

fn hit(text: &str, at: usize, end: usize) -> Option<Hit> {
    let key = text.get(at..end)?;
    // Aliases are kept.
    let replaced = key.strip_prefix("secret-").is_some_and(|it| is_number(it.trim_end_matches('*')))
        || key.bytes().all(|it| it == b'*');
    (end > at && !replaced).then(|| Hit { kind: Kind::Secret, key: key.to_owned(), end })
}

/// Words without which a text holds no certain secret, in lower case.
static WORDS: &[&str] = &[
    "akia",
    "aiza",
    "asia",
    "auth",
    "basic",
    "bearer",
    "connection_string",
    "credential",
    "dckr_pat_",
    "eyj",
    "gh",
    "glpat-",
    "gsk_",
    "hf_",
    "key",
    "npm_",
    "nvapi-",
    "pass",
    "pypi-",
    "secret",
    "signature",
    "sk-",
    "token",
    "wandb",
    "xox",
    "-----begin",
    "://",
];

/// Whether a text may hold a certain secret: most texts have no such word and are not looked at closely.
pub(super) fn is_suspect(text: &str) -> bool {
    let bytes = text.as_bytes();
    let begins = |rest: &[u8]| {
        let first = rest.first().map_or(0, u8::to_ascii_lowercase);
        WORDS.iter().any(|word| {
            let word = word.as_bytes();
            word.first() == Some(&first)
                && rest.get(..word.len()).is_some_and(|it| it.eq_ignore_ascii_case(word))
        })
    };
    (0..bytes.len()).any(|at| bytes.get(at..).is_some_and(begins))
}

/// Prefixes of secrets, and the minimum length after them.
pub(super) static FORMS: &[(&str, usize)] = &[
    ("AKIA", 16),
    ("ASIA", 16),
    ("hf_", 10),
    ("ghp_", 10),
    ("gho_", 10),
    ("ghu_", 10),
    ("ghs_", 10),
    ("ghr_", 10),
    ("github_pat_", 10),
    ("glpat-", 10),
    ("nvapi-", 10),
    ("sk-", 12),
    ("xoxa-", 10),
    ("xoxb-", 10),
    ("xoxp-", 10),
    ("AIza", 30),
    ("dckr_pat_", 10),
    ("gsk_", 20),
    ("npm_", 20),
    ("pypi-", 20),
];

/// Secrets with a known format.
pub(super) fn token_end(text: &str, at: usize) -> Option<usize> {
    if is_word(before(text, at)) {
        return None;
    }
    let rest = text.get(at..)?;
    for (name, least) in FORMS {
        let Some(body) = rest.strip_prefix(name) else { continue };
        let length = run(body, 0, is_label);
        let body = body.get(..length)?;
        if length >= *least
            && (length >= 20 || body.bytes().any(|it| it.is_ascii_digit() || it.is_ascii_uppercase()))
        {
            return Some(at + name.len() + length);
        }
    }
    jwt_end(text, at).or_else(|| bearer_end(text, at)).or_else(|| {
        // An API key of Weights & Biases is 40 hexadecimal digits, as is a commit: only where the text mentions one.
        let end = run(text, at, |it| it.is_ascii_hexdigit());
        (end - at == 40
            && !is_word(byte(text, end))
            && text.get(..at)?.to_ascii_lowercase().contains("wandb"))
        .then_some(end)
    })
}

/// `eyJ....eyJ....signature`
pub(super) fn jwt_end(text: &str, at: usize) -> Option<usize> {
    if !text.get(at..)?.starts_with("eyJ") {
        return None;
    }
    let mut end = run(text, at, is_label);
    for _ in 0..2 {
        if byte(text, end) != Some(b'.') {
            return None;
        }
        end = run(text, end + 1, is_label);
    }
    (end - at > 12).then_some(end)
}

/// What follows `Bearer ` or `Basic `.
pub(super) fn bearer_end(text: &str, at: usize) -> Option<usize> {
    let before = text.get(..at)?;
    let scheme = before.strip_suffix(' ')?.rsplit(|it: char| !it.is_ascii_alphabetic()).next()?;
    let basic = || scheme == "Basic" && before.to_ascii_lowercase().contains("authorization");
    if !(scheme.eq_ignore_ascii_case("bearer") || basic()) {
        return None;
    }
    let end = run(text, at, |it| it.is_ascii_alphanumeric() || b"._~+/=-".contains(&it));
    let token = text.get(at..end)?.trim_end_matches('.');
    let plain_word = token.len() < 16 && token.bytes().all(|it| it.is_ascii_lowercase());
    (token.len() >= 6 && !plain_word).then_some(at + token.len())
}

/// `-----BEGIN PRIVATE KEY-----` and what follows it, up to the end of the block or of the text.
fn block_end(text: &str, at: usize) -> Option<usize> {
    const END: &str = "-----END";
    let rest = text.get(at..)?.strip_prefix("-----BEGIN ")?;
    let end = rest.find(END).and_then(|from| {
        let after = from + END.len();
        Some(after + rest.get(after..)?.find("-----")? + 5)
    });
    Some(end.map_or(text.len(), |it| text.len() - rest.len() + it))
}

/// Whether a line is one of those between `-----BEGIN` and `-----END`: as long as such lines are, of all letters and digits.
pub(super) fn is_block_line(line: &str) -> bool {
    let line = line.trim();
    let has = |is: fn(&u8) -> bool| line.bytes().any(|it| is(&it));
    matches!(line.len(), 64 | 70 | 76)
        && line.bytes().all(|it| it.is_ascii_alphanumeric() || b"+/=".contains(&it))
        && has(u8::is_ascii_uppercase)
        && has(u8::is_ascii_lowercase)
        && has(u8::is_ascii_digit)
}

/// `user:password` of `https://user:password@host/`.
fn login_end(text: &str, at: usize) -> Option<usize> {
    text.get(..at)?.strip_suffix("://")?;
    let rest = text.get(at..)?;
    let end = rest.find(|it: char| it == '/' || it == '?' || it == '#' || is_url_limit(it));
    let (login, _) = rest.get(..end.unwrap_or(rest.len()))?.rsplit_once('@')?;
    let (_, password) = login.split_once(':')?;
    (!password.is_empty() && !password.starts_with(['$', '<', '*'])).then_some(at + login.len())
}

/// The value of `password=...`, `"token": "..."`, `--api-key ...`, `{name: HF_TOKEN, value: ...}`.
fn assigned_end(text: &str, at: usize, is_key: impl Fn(&str) -> bool) -> Option<usize> {
    if !matches!(before(text, at)?, b'=' | b':' | b' ' | b'"' | b'\'') {
        return None;
    }
    let left = text.get(..at)?;
    let (key, sure, quote) = key_before(left)?;
    let (key, sure) = match named_before(left, key) {
        Some(name) => (name, true),
        None => (key, sure || is_config_key(left, key)),
    };
    if !is_key(key) {
        return None;
    }
    let rest = text.get(at..)?;
    let limit = |it: char| match quote {
        Some(quote) => it == quote,
        None => it.is_whitespace() || "\"'`,;&(){}[]<>|".contains(it),
    };
    let value = rest.get(..rest.find(limit).unwrap_or(rest.len()))?;
    // `password: swordfish` in a sentence, unless the word says how it is.
    let said = is_password(key) && !listed(STATES, &value.to_ascii_lowercase());
    is_secret_value(key, value, sure || said || quote.is_some()).then_some(at + value.len())
}

/// What messages say about a password instead of naming it.
static STATES: &str = "a an empty expected expired has incorrect invalid is missing must no not required the unknown unset was wrong";

fn is_password(key: &str) -> bool {
    let key = key.to_ascii_lowercase();
    ["password", "passwd", "passphrase", "api_key", "apikey", "access_key", "secret_key"]
        .iter()
        .any(|it| key.ends_with(it))
}

/// The key whose value begins after `before`, whether it is surely an assignment, and the quote that opens the value.
pub(super) fn key_before(before: &str) -> Option<(&str, bool, Option<char>)> {
    let quote = before.chars().next_back().filter(|it| matches!(it, '"' | '\''));
    let left = quote.map_or(before, |it| before.strip_suffix(it).unwrap_or(before));
    let spaced = left.trim_end_matches(' ');
    let (left, sure) = if let Some(left) = spaced.strip_suffix('=') {
        (left, true)
    } else if let Some(left) = spaced.strip_suffix(':') {
        (left, false)
    } else if spaced.len() < left.len() {
        // `--token VALUE`, and `ENV HF_TOKEN VALUE` of a Dockerfile.
        let (rest, word) = spaced.rsplit_once(' ').unwrap_or(("", spaced));
        let env = || Some(word).filter(|_| rest.trim() == "ENV");
        return word.strip_prefix("--").or_else(env).map(|it| (it, true, quote));
    } else {
        return None;
    };
    let left = left.trim_end_matches([' ', '"', '\'']);
    let key = left.get(after_last(left, |it| !u8::try_from(it).is_ok_and(is_label))..)?;
    (!key.is_empty()).then_some((key, sure, quote))
}

/// The name of a variable whose value is the one of the key `value`: `name: HF_TOKEN, value: `.
fn named_before<'a>(left: &'a str, key: &str) -> Option<&'a str> {
    if !key.eq_ignore_ascii_case("value") {
        return None;
    }
    left.rmatch_indices("name").find_map(|(at, word)| {
        let rest = left.get(at + word.len()..)?.trim_start_matches(['"', '\'']).trim_start();
        let rest = rest.strip_prefix(':')?.trim_start().trim_start_matches(['"', '\'']);
        rest.get(..run(rest, 0, is_label)).filter(|it| !it.is_empty())
    })
}

/// Whether a key before a colon is one of a configuration, not a word of a sentence: `HF_TOKEN: `, or the first on its line.
fn is_config_key(left: &str, key: &str) -> bool {
    let has = |is: fn(&u8) -> bool| key.bytes().any(|it| is(&it));
    let constant = key.contains('_') && !has(u8::is_ascii_lowercase);
    let first = || {
        let line = left.rsplit('\n').next().unwrap_or(left);
        line.trim_start_matches([' ', '\t', '-', '{', '"', '\'']).starts_with(key)
    };
    constant || (!has(u8::is_ascii_uppercase) && first())
}

pub(super) fn is_secret_key(key: &str) -> bool {
    // Tokens of a language model are not secrets.
    static MODEL: &str = "added bos cls eos image mask max next num pad per sep special stop unk";
    static ENDINGS: &str = "password passwd passphrase secret token api_key apikey access_key accesskey access_key_id \
        secret_key private_key auth_key encryption_key signing_key ssh_key storage_key account_key license_key _pass \
        auth_config connection_string amz_signature credential credentials";
    let key = key.trim_start_matches('-').to_ascii_lowercase().replace('-', "_");
    match key.strip_suffix("_token") {
        Some(kind) => !listed(MODEL, kind.rsplit('_').next().unwrap_or_default()),
        None => ENDINGS.split_ascii_whitespace().any(|it| key.ends_with(it)),
    }
}

pub(super) fn is_user_key(key: &str) -> bool {
    matches!(key, "USER" | "USERNAME" | "LOGNAME")
}

/// Whether a value can be a secret: a reference to one, a number of tokens or a word of a sentence is not.
pub(super) fn is_secret_value(key: &str, value: &str, sure: bool) -> bool {
    let lower = value.to_ascii_lowercase();
    let empty = matches!(
        lower.as_str(),
        "" | "none" | "null" | "nil" | "true" | "false" | "undefined" | "redacted" | "~"
    );
    let reference = value.starts_with('$')
        || value.starts_with('<')
        || value.bytes().all(|it| matches!(it, b'*' | b'x' | b'X' | b'.' | b'-'));
    let count = key.to_ascii_lowercase().ends_with("token") && is_number(value);
    let dense = value.len() >= 12
        || value.bytes().any(|it| it.is_ascii_digit())
        || value.bytes().skip(1).any(|it| it.is_ascii_uppercase());
    let everyone = is_user_key(key) && is_common_user(value);
    !empty && !reference && !count && !everyone && (sure || dense)
}

/// `someone@example.org`
pub(super) fn mail_end(text: &str, at: usize) -> Option<usize> {
    let local = |it: u8| it.is_ascii_alphanumeric() || b"._%+-".contains(&it);
    if before(text, at).is_some_and(local) {
        return None;
    }
    let sign = run(text, at, local);
    if sign == at || byte(text, sign) != Some(b'@') {
        return None;
    }
    let end = run(text, sign + 1, |it| it.is_ascii_alphanumeric() || it == b'.' || it == b'-');
    let domain = text.get(sign + 1..end)?.trim_end_matches(['.', '-']);
    let (name, top) = domain.rsplit_once('.')?;
    let valid = !name.is_empty() && top.len() >= 2 && top.bytes().all(|it| it.is_ascii_alphabetic());
    valid.then_some(sign + 1 + domain.len())
}

/// The number of an AWS account, in an ARN or before the name of a registry.
pub(super) fn account_end(text: &str, at: usize) -> Option<usize> {
    let end = run(text, at, |it| it.is_ascii_digit());
    if end - at != 12 || is_word(before(text, at)) {
        return None;
    }
    let in_arn =
        || text.get(..at).is_some_and(|it| it.rsplit(' ').next().is_some_and(|it| it.contains("arn:aws")));
    (text.get(end..)?.starts_with(".dkr.ecr.") || in_arn()).then_some(end)
}
