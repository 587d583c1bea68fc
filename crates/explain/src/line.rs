//! A line of a log or a piece of one: what printed it, what it means, and which rules fire on this line alone.
//!
//! From the most exact answer to the least: the family of the message, the facts of the source that prints it, the value in it, the part
//! of the product it comes from, what plumb's parsers and signals say of it, and last the nearest known texts.

use evidence::catalogue::Libfabric;
use evidence::plugin::printed_by;
use evidence::prefix::{Anchor, Level, Line};
use evidence::{nccl, signals};
use messages::family::Class;
use messages::values::{self, Value};
use messages::{Entry, Hint, Known, Outcome, Product};

use crate::{Explanation, Kind};

/// What is asked about, without the prefix of its line.
struct Asked<'a> {
    message: &'a [u8],
    hint: Hint<'a>,
    /// The level, where the line has one.
    level: Option<messages::Level>,
    /// Whether NCCL or libfabric printed the line: it has their prefix.
    prefixed: bool,
}

pub(crate) fn explain(asked: &str) -> Vec<Explanation> {
    let it = Asked::new(asked);
    let mut found = Vec::new();
    let known = messages::look_up(it.message, it.hint);
    let ordinary = it.level != Some(messages::Level::Warn);
    if ordinary && let Some(kind) = nccl::describe(it.message) {
        let writer = printed_by(kind.example.as_bytes()).map_or("NCCL", |it| it.0.name);
        let mut it = Explanation::new(Kind::Line, format!("a line of {writer}"));
        it.add("printed", kind.since);
        it.add("like", kind.example);
        it.add("meaning", kind.meaning);
        found.push(it);
    }
    if let Some(known) = &known
        && (found.is_empty() || known.reading.is_some())
    {
        found.insert(0, of_known(known, &it));
    }
    let own = it.prefixed || known.is_some();
    for seen in signals::book().find(asked.as_bytes()) {
        // NCCL's own lines name variables; they do not set them.
        if own && *seen.signal == signals::notes::ASSIGNMENT {
            continue;
        }
        let title = format!("a line that plumb looks for: {}", seen.signal.name);
        let mut it = Explanation::new(Kind::Line, title);
        it.add("printed by", seen.signal.source);
        it.add("meaning", seen.signal.meaning);
        for capture in &seen.captures {
            it.add(capture.name, String::from_utf8_lossy(capture.text));
        }
        found.push(it);
    }
    let rules = rules_it_is_enough_for(asked);
    if !rules.is_empty() {
        if found.is_empty() {
            found.push(Explanation::new(Kind::Line, "a line of a log".to_owned()));
        }
        if let Some(last) = found.last_mut() {
            last.add_all("alone gives", rules);
        }
    }
    if found.is_empty() {
        found.extend(unknown(asked, &it));
    }
    found
}

impl<'a> Asked<'a> {
    fn new(asked: &'a str) -> Self {
        let bytes = asked.as_bytes();
        if let Some(Line { level, location, message, .. }) = Anchor::default().split(bytes) {
            let ofi = message.starts_with(b"NET/OFI ");
            let product = if ofi { Product::AwsOfiNccl } else { Product::Nccl };
            let level = if level == Level::Warn { messages::Level::Warn } else { messages::Level::Info };
            let hint = Hint { product: Some(product), level: Some(level), location };
            return Self { message, hint, level: Some(level), prefixed: true };
        }
        if let Some(it) = Libfabric::split(bytes) {
            let level = if it.warning { messages::Level::Warn } else { messages::Level::Info };
            let product = Some(Product::LibfabricEfa);
            let hint = Hint { product, level: Some(level), location: it.function.as_bytes() };
            return Self { message: it.message, hint, level: Some(level), prefixed: true };
        }
        // What PyTorch and XLA print of the last warning of NCCL.
        let markers = ["Last error:", "Last NCCL warning(error) log entry"];
        let rest = markers.iter().find_map(|it| asked.split_once(it)).map_or(asked, |it| it.1);
        let message = rest.trim_start_matches([' ', '\n', '\'', '"', ':']).trim().as_bytes();
        Self { message, hint: Hint::default(), level: None, prefixed: false }
    }
}

/// Family, facts, value and component of a message.
fn of_known(known: &Known<'_>, asked: &Asked<'_>) -> Explanation {
    let entry = known.found.as_ref().map(|it| it.entry);
    let product = entry.map_or("NCCL", |it| it.product.name());
    let warning = entry.is_none_or(|it| it.level == messages::Level::Warn);
    let kind = if warning { "a warning" } else { "a line" };
    let class = known.class().map_or(String::new(), |it| format!(" ({}: {})", it.name(), class_in_words(it)));
    let mut it = Explanation::new(Kind::Line, format!("{kind} of {product}{class}"));
    if let Some(reading) = &known.reading {
        it.add("meaning", reading.meaning());
        let sure = |cause: &messages::family::Cause| {
            format!("{} ({})", cause.text, format!("{:?}", cause.confidence).to_ascii_lowercase())
        };
        it.add_all("causes", reading.family.causes.iter().map(sure));
        it.add("fix", reading.remedy());
        it.add("look at", &*reading.family.look);
        it.sources = crate::paragraphs(reading.family.references.iter().map(|it| &**it));
    }
    if let Some(entry) = entry {
        it.add("text", entry.to_string());
        it.add("printed", printed(entry, asked.hint.location));
        it.add("then", outcome(entry));
    }
    if let Some(component) = known.component {
        it.add("part", component);
    }
    for value in values_of(known, asked.message) {
        it.add("value", in_words(value));
        if !value.is_harmless() && known.reading.is_none_or(|it| it.variant.is_none()) {
            it.add("", &*value.remedy);
        }
    }
    if known.reading.is_none() {
        it.add("meaning", meaning_by_facts(known));
    }
    it
}

fn class_in_words(class: Class) -> &'static str {
    match class {
        Class::Cause => "something failed at this place",
        Class::Consequence => "it follows from an earlier failure",
        Class::Harmless => "nothing is wrong",
        Class::Setting => "a setting is wrong or forbids what the job needs",
        Class::Usage => "the program calls NCCL in a way that is not allowed",
        Class::Internal => "a check inside the library failed",
    }
}

/// By whom and in which releases.
fn printed(entry: &Entry, location: &[u8]) -> String {
    let here = str::from_utf8(location).unwrap_or_default().split(':').next().unwrap_or_default();
    let place = match (entry.file, entry.function) {
        ("", _) if here.contains('.') => format!("by {here}, "),
        ("", _) => String::new(),
        (file, "") => format!("by {file}, "),
        (file, function) => format!("by {file}, {function}, "),
    };
    let product = match entry.product {
        Product::LibfabricEfa => "libfabric",
        other => other.name(),
    };
    let releases = if entry.first == entry.last {
        format!("{product} {}", entry.first)
    } else {
        format!("{product} {} to {}", entry.first, entry.last)
    };
    format!("{place}{releases}")
}

fn outcome(entry: &Entry) -> String {
    match entry.outcome {
        Outcome::Returns(code) => match values::find(values::Table::NcclResult, i64::from(code)) {
            Some(value) => format!("the function returns {} ({})", value.name, value.text),
            None => format!("the function returns {code}"),
        },
        Outcome::Fails => "the function fails".to_owned(),
        Outcome::Continues => String::new(),
    }
}

/// What follows from the facts alone.
fn meaning_by_facts(known: &Known<'_>) -> &'static str {
    match known.class() {
        Some(Class::Usage) => {
            "NCCL refused a call of the program: its arguments, their order or the state of the communicator are not allowed."
        }
        Some(Class::Consequence) => {
            "Another process or the network failed first; look for the earliest warning of the other ranks."
        }
        Some(Class::Internal) => {
            "A check inside the library failed. Most often another failure came before it: look for the earliest warning of the job."
        }
        Some(Class::Cause | Class::Setting) => {
            "Something failed at this place. The lines of the same process before it say more."
        }
        Some(Class::Harmless) | None => "",
    }
}

/// The codes in a message that have a meaning of their own.
fn values_of(known: &Known<'_>, message: &[u8]) -> Vec<&'static Value> {
    let text = String::from_utf8_lossy(message);
    let mut found: Vec<&'static Value> = known.reading.iter().filter_map(|it| it.value).collect();
    let filled = known.found.iter().flat_map(|it| &it.values);
    for it in filled {
        let Some(table) = table(it.hole.table) else { continue };
        let value = String::from_utf8_lossy(it.text);
        let number = value.parse::<i64>().ok().and_then(|it| values::find(table, it.abs()));
        let value =
            number.or_else(|| values::find_text(table, &value)).or_else(|| values::in_text(table, &text));
        if let Some(value) = value
            && !found.contains(&value)
        {
            found.push(value);
        }
    }
    found
}

fn table(name: &str) -> Option<values::Table> {
    Some(match name {
        "errno" => values::Table::Errno,
        "cuda" => values::Table::Cuda,
        "wc" => values::Table::VerbsStatus,
        "event" => values::Table::VerbsEvent,
        "nvml" => values::Table::Nvml,
        "fi" => values::Table::Libfabric,
        "efa" => values::Table::Efa,
        "result" => values::Table::NcclResult,
        _ => return None,
    })
}

fn in_words(value: &Value) -> String {
    let text = if value.text.is_empty() { String::new() } else { format!(", {}", value.text) };
    format!("{} {} ({}{text}): {}", value.table.title(), value.code, value.name, value.meaning)
}

/// A code by its name or number: `IBV_WC_REM_ACCESS_ERR`, `Xid 79`.
pub(crate) fn value(asked: &str) -> Vec<Explanation> {
    let explained = values::find_name(asked).into_iter().map(|value| {
        let title = format!("{} ({} {})", value.name, value.table.title(), value.code);
        let mut it = Explanation::new(Kind::Value, title);
        it.add("text", value.printed().next().unwrap_or_default());
        it.add("meaning", &*value.meaning);
        it.add("fix", &*value.remedy);
        it.sources = crate::paragraphs([&*value.source]);
        it
    });
    explained.collect()
}

/// A line that nothing knows, but that says where it comes from; or the nearest known texts.
fn unknown(asked: &str, it: &Asked<'_>) -> Option<Explanation> {
    let near = messages::nearest(&String::from_utf8_lossy(it.message));
    let location = str::from_utf8(it.hint.location).unwrap_or_default();
    let file = location.split(':').next().unwrap_or_default();
    let part = it.hint.product.and_then(|product| messages::component(product, file));
    if near.is_empty() && !it.prefixed {
        return None;
    }
    let title = match (it.prefixed, it.level) {
        (true, Some(messages::Level::Warn)) => "a warning whose text plumb does not know",
        (true, _) => "a line of NCCL whose text plumb does not know",
        (false, _) if asked.len() < 60 => "a piece of these messages, or similar to them",
        (false, _) => "not known; similar messages",
    };
    let mut explanation = Explanation::new(Kind::Line, title.to_owned());
    explanation.add("printed by", file);
    explanation.add("part", part.unwrap_or_default());
    let one = |entry: &&Entry| {
        let meaning = entry.family().map_or(String::new(), |it| format!(": {}", it.meaning));
        format!("{entry} [{}]{meaning}", printed(entry, b""))
    };
    explanation.add_all("near", near.iter().map(one));
    Some(explanation)
}

/// The findings for a log with only this line.
fn rules_it_is_enough_for(line: &str) -> Vec<String> {
    let log = rules::Log::new(evidence::read_texts([("line", line.as_bytes())]));
    rules::diagnose(&log)
        .findings
        .iter()
        .filter(|it| it.rule.id != "unexplained-warning")
        .map(|it| format!("{} ({}, {})", it.rule.id, it.severity().name(), it.finding.confidence.name()))
        .collect()
}

#[cfg(test)]
mod tests {
    use crate::{Kind, explain};

    #[track_caller]
    fn says(asked: &str, want: &[&str]) -> String {
        let found = explain(asked);
        let text = format!("{found:#?}");
        for want in want {
            assert!(text.contains(want), "{asked}: no `{want}` in {text}");
        }
        text
    }

    #[test]
    fn a_warning_is_explained_by_its_family_and_the_facts() {
        says(
            "n:1:2 [0] proxy.cc:1512 NCCL WARN [Service thread] Error encountered progressing operation=Connect, res=6, closing connection",
            &["proxy.cc", "NCCL 2.", "consequence", "the proxy"],
        );
    }

    #[test]
    fn facts_alone_explain_a_warning_without_family() {
        says(
            "n:1:2 [0] graph/search.cc:7 NCCL WARN Could not find rev link for 1/2 -> 3/4",
            &["findRevLink", "ncclInternalError", "2.10.3 to", "the search for rings"],
        );
    }

    #[test]
    fn an_assignment_does_not_speak_for_a_line_of_nccl() {
        for line in [
            "n:1:2 [0] x.cc:1 NCCL WARN If your system is unable to use P2P, set NCCL_IGNORE_DISABLED_P2P=1.",
            "n:1:2 [0] NCCL INFO set NCCL_X=3 to be rid of this",
        ] {
            let text = format!("{:?}", explain(line));
            assert!(!text.contains("looks for: assignment"), "{text}");
        }
    }

    #[test]
    fn a_warning_is_not_explained_as_an_ordinary_line() {
        let line = "n:1:2 [0] proxy.cc:1 NCCL WARN [Proxy Service 0] Failed to execute operation Setup from rank 3, retcode 3";
        let text = format!("{:?}", explain(line));
        assert!(!text.contains("the core it runs on") && text.contains("a warning of NCCL"), "{text}");
    }

    #[test]
    fn names_of_codes() {
        for (asked, want) in [
            ("ncclInternalError", "result of NCCL 3"),
            ("IBV_WC_REM_ACCESS_ERR", "10"),
            ("cudaErrorUnknown", "CUDA error 999"),
            ("Xid 79", "79"),
            ("EADDRINUSE", "errno 98"),
            ("exit code 137", "137"),
            ("SIGBUS", "signal 7"),
        ] {
            says(asked, &[want]);
            assert_eq!(explain(asked)[0].kind, Kind::Value, "{asked}");
        }
    }

    #[test]
    fn the_last_error_is_the_warning_it_repeats() {
        says(
            "Last error:\nCuda failure 1 'invalid argument'",
            &["invalid argument", "cudaErrorInvalidValue"],
        );
    }

    #[test]
    fn a_fragment_and_an_unknown_warning_get_the_nearest() {
        says("no algorithm/protocol available", &["NCCL"]);
        says("n:1:2 [0] transport/net_ib.cc:9 NCCL WARN The moon is in the wrong house", &["InfiniBand"]);
    }

    #[test]
    fn warnings_of_libfabric() {
        says(
            "libfabric:35:1668017255::efa:ep_ctrl:efa_rdm_ep_alloc_rxe():243<warn> RX entries exhausted",
            &["a warning of libfabric", "efa_rdm_ep_alloc_rxe"],
        );
    }
}
