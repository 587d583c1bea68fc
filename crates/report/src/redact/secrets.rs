//! Keys, tokens, passwords, mail addresses, account numbers.

use super::names::{Hit, Kind};
use super::paths::is_common_user;
use super::scan::{after_last, before, byte, is_label, is_number, is_word, listed, run};

pub(super) fn secret(text: &str, at: usize) -> Option<Hit> {
    let end = token_end(text, at)
        .or_else(|| assigned_end(text, at))
        .or_else(|| mail_end(text, at))
        .or_else(|| account_end(text, at))?;
    let key = text.get(at..end)?;
    // Aliases are kept.
    let replaced = key.strip_prefix("secret-").is_some_and(is_number);
    (end > at && !replaced).then(|| Hit { kind: Kind::Secret, key: key.to_owned(), end })
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
    ("xoxb-", 10),
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

/// The value of `password=...`, `"token": "..."`, `--api-key ...`.
pub(super) fn assigned_end(text: &str, at: usize) -> Option<usize> {
    if !matches!(before(text, at)?, b'=' | b':' | b' ' | b'"' | b'\'') {
        return None;
    }
    let (key, sure, quote) = key_before(text.get(..at)?)?;
    if !is_secret_key(key) {
        return None;
    }
    let rest = text.get(at..)?;
    let limit = |it: char| match quote {
        Some(quote) => it == quote,
        None => it.is_whitespace() || "\"'`,;&(){}[]<>|".contains(it),
    };
    let value = rest.get(..rest.find(limit).unwrap_or(rest.len()))?;
    is_secret_value(key, value, sure || quote.is_some()).then_some(at + value.len())
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
        // `--token VALUE`
        let flag = spaced.rsplit(' ').next()?;
        return flag.strip_prefix("--").map(|it| (it, true, quote));
    } else {
        return None;
    };
    let left = left.trim_end_matches([' ', '"', '\'']);
    let key = left.get(after_last(left, |it| !u8::try_from(it).is_ok_and(is_label))..)?;
    (!key.is_empty()).then_some((key, sure, quote))
}

pub(super) fn is_secret_key(key: &str) -> bool {
    // Tokens of a language model are not secrets.
    static MODEL: &str = "added bos cls eos image mask max next num pad per sep special stop unk";
    static ENDINGS: &str = "password passwd passphrase secret token api_key apikey access_key accesskey access_key_id \
        secret_key private_key auth_key credential credentials";
    if is_user_key(key) {
        return true;
    }
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
