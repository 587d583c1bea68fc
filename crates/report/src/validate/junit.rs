//! The same as `JUnit` XML: one test case for each machine, one for the verdict, one for each slow part, and what is not known is skipped.

use std::collections::BTreeSet;
use std::io::{self, Write};

use rules::Severity;

use super::{Accused, Validate};
use crate::Finding;
use crate::junit::{Outcome, Suite, TestCase};

impl Validate {
    /// For CI systems.
    pub fn junit(&self, out: &mut impl Write) -> io::Result<()> {
        self.junit_with(&[], Some(Severity::Error), out)
    }

    /// The same with what is wrong besides, of which what is at least `fail_on` fails.
    pub(crate) fn junit_with(
        &self,
        findings: &[Finding],
        fail_on: Option<Severity>,
        out: &mut impl Write,
    ) -> io::Result<()> {
        let case = |class, name: String, outcome| TestCase { class, name, outcome, output: Vec::new() };
        let failed =
            |message: String, text: String| Outcome::Failed { severity: Severity::Error, message, text };
        let verdict = match () {
            () if self.is_go() => Outcome::Passed,
            () if self.is_no_go() => failed(self.text.clone(), self.source.clone()),
            // Exit code 2: neither passed nor failed.
            () => Outcome::Broken(self.text.clone()),
        };
        let mut others = vec![case("plumb.verdict", "fit to train".to_owned(), verdict)];
        for it in &self.findings {
            let nic = it.nic_name().map(|it| format!(" {it}")).unwrap_or_default();
            let name = format!("{} {}{nic}", it.class, it.hosts.join(" "));
            let remark = it.remark.as_ref().map(|it| format!("\n{it}")).unwrap_or_default();
            others.push(case(
                "plumb.finding",
                name,
                failed(it.text.clone(), format!("{}{remark}\n-> {}", it.text, it.action)),
            ));
        }
        for it in &self.splits {
            let groups: Vec<String> = it.groups.iter().map(|it| it.join(" ")).collect();
            let text = format!(
                "{} pairs across groups reach {} of pairs inside",
                it.across,
                super::percent(it.share)
            );
            others.push(case("plumb.finding", format!("tier {}", it.test), failed(text, groups.join("\n"))));
        }
        // Machines that did not answer take no part in what was measured.
        let silent = self.findings.iter().flat_map(|it| &it.hosts).filter(|it| !self.hosts.contains(it));
        let machines: Vec<&String> = self.hosts.iter().chain(silent).collect();
        let mut seen: BTreeSet<&str> = BTreeSet::new();
        for host in machines.into_iter().filter(|it| seen.insert(it)) {
            let texts: Vec<&str> = self.about(host).map(|it| it.text.as_str()).collect();
            // Nothing was found about it; whether it was measured enough is what the verdict says.
            let outcome = match &texts[..] {
                [] => Outcome::Passed,
                [first, ..] => failed((*first).to_owned(), texts.join("\n")),
            };
            others.push(case("plumb.machine", host.clone(), outcome));
        }
        for (number, it) in self.not_known.iter().enumerate() {
            others.push(case(
                "plumb.not_known",
                format!("not known {}", number + 1),
                Outcome::Skipped(it.clone()),
            ));
        }
        Suite {
            command: "validate",
            properties: vec![
                ("schema", self.schema),
                ("verdict", self.verdict),
                ("verdict.text", &self.text),
            ],
            findings,
            fail_on,
            others,
        }
        .write(out)
    }

    /// What is said of one machine: not of a whole switch, nor of the many machines of a run.
    fn about<'a>(&'a self, host: &'a str) -> impl Iterator<Item = &'a Accused> {
        self.findings.iter().filter(move |it| it.hosts.len() <= 2 && it.accuses(host))
    }
}
