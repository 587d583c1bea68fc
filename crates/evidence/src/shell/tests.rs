//! Scripts, and the commands they come to.

use super::{Commands, follow};

fn run(text: &str) -> Commands {
    follow("a.sh", text, &[], &mut |_, _| None).unwrap()
}

fn last(text: &str) -> String {
    let found = run(text);
    let words: Vec<&str> = found.commands.last().unwrap().iter().map(|it| it.text.as_str()).collect();
    words.join("|")
}

#[test]
fn variables_lists_and_arithmetic_are_filled_in() {
    let text = "#!/bin/bash\nTP=4; PP=$((TP / 2))\nARGS=\"--tp $TP \\\n  --pp ${PP}\"\nMORE=(\n  --seq ${SEQ:-2048} # tokens\n  --name \"a b\"\n)\n\
                MORE+=(--bf16)\ntorchrun --nproc_per_node=${GPUS} x.py $ARGS \"${MORE[@]}\" $(hostname)\n";
    assert_eq!(
        last(text),
        "torchrun|--nproc_per_node=${GPUS}|x.py|--tp|4|--pp|2|--seq|2048|--name|a b|--bf16|$(hostname)"
    );
    let found = run(text);
    let line = |word: &str| found.commands[0].iter().find(|it| it.text == word).unwrap().line;
    assert_eq!((line("4"), line("--pp"), line("2048"), line("--bf16")), (2, 4, 6, 9));
}

#[test]
fn branches_are_decided_where_their_variables_are_known() {
    let text = "SIZE=7B\nif [ $SIZE = 13B ]; then L=40; elif [[ $SIZE == 7B && 1 -lt 2 ]]; then L=32; else L=1; fi\n\
                case $SIZE in 13B) H=5120;; 7B|8B) H=4096;; *) H=1;; esac\n\
                [ -z \"$X\" ] && X=5\nfor n in 2 4; do N=$n; done\nif [ $AC = full ]; then Z=1; fi\nf() {\n  run $L $H $N $X $1\n}\nf\n";
    assert_eq!(last(text), "run|32|4096|2|5|$1");
    let found = run(text);
    assert_eq!(found.undecided.len(), 1);
    assert_eq!((found.undecided[0].on.as_str(), found.undecided[0].line), ("$AC", 6));
}

#[test]
fn commands_in_texts_and_files_in_scripts_are_read() {
    let text = "S=1\ncat <<EOT > ./ds.json\n{\"stage\": $S}\nEOT\nCMD=\"python x.py \\\n  --zero $S\"\necho $CMD\nsrun bash -c \"torchrun $CMD\" 2>&1 | tee log\n";
    let found = run(text);
    assert_eq!(
        (found.written[0].name.as_str(), found.written[0].text.as_str()),
        ("./ds.json", "{\"stage\": 1}\n")
    );
    let all: Vec<&str> = found.commands.iter().map(|it| it[0].text.as_str()).collect();
    assert_eq!(all, ["srun", "torchrun", "tee"]);
    assert_eq!(last("A=(x --y 1)\ncmd=\"run ${A[@]} z\"\neval $cmd\n"), "run|x|--y|1|z");
}

#[test]
fn lists_in_quotes_are_read_by_the_inner_shell() {
    let lists = "A=(--l 32 --s 4096)\nB=(--m 1 --b 32)\n";
    let of = |line: &str| last(&format!("{lists}{line}\n"));
    let whole = "python|p.py|--l|32|--s|4096|--m|1|--b|32|--lr|1e-4";
    assert_eq!(of("srun bash -c \"python p.py ${A[*]} ${B[*]} --lr 1e-4\""), whole);
    assert_eq!(of("bash -c \"python p.py ${A[*]}\""), "python|p.py|--l|32|--s|4096");
    for ssh in ["ssh n1", "ssh -o X=yes -tp 22 -i key me@n1", "nohup /usr/bin/ssh n1 -p22"] {
        for at in ["@", "*"] {
            let line = format!("{ssh} \"python p.py ${{A[{at}]}} ${{B[{at}]}} --lr 1e-4\"");
            assert_eq!(of(&line), whole, "{line}");
        }
        assert_eq!(of(&format!("{ssh} python p.py ${{A[@]}} \"${{B[@]}}\" --lr 1e-4")), whole);
    }
    // Without a shell that reads them again, they are what bash makes of them.
    assert_eq!(of("run \"x ${A[*]} y\" \"x ${A[@]} y\""), "run|x --l 32 --s 4096 y|x --l|32|--s|4096 y");
    assert_eq!(of("run ${A[*]}"), "run|--l|32|--s|4096");
    // The line of a word is that of the list.
    let found = run(&format!("{lists}\nssh n1 \"python ${{A[@]}} ${{B[@]}}\"\n"));
    let words = found.commands.last().unwrap();
    let line = |word: &str| words.iter().find(|it| it.text == word).unwrap().line;
    assert_eq!((line("python"), line("4096"), line("32"), line("--b")), (4, 1, 1, 2));
    // Nothing to read.
    assert_eq!(of("ssh -p 22 n1"), "ssh|-p|22|n1");
}

#[test]
fn sourced_files_are_followed_and_circles_are_refused() {
    let mut files = |_: &str, path: &str| match path {
        "b.sh" => Some(("b.sh".to_owned(), "N=3\n".to_owned())),
        "c.sh" => Some(("c.sh".to_owned(), "\nsource c.sh\n".to_owned())),
        _ => None,
    };
    let found = follow("a.sh", "source b.sh\n. none.sh\nrun $N\n", &[], &mut files).unwrap();
    assert_eq!(found.commands[0][1].text, "3");
    let mut called =
        |_: &str, path: &str| (path == "t.sh").then(|| ("t.sh".to_owned(), "run $1 ${2:-4}\n".to_owned()));
    let found = follow("a.sh", "bash t.sh 7B\n./none.sh x\n", &[], &mut called).unwrap();
    let words: Vec<Vec<&str>> =
        found.commands.iter().map(|it| it.iter().map(|it| it.text.as_str()).collect()).collect();
    assert_eq!(words, [vec!["run", "7B", "4"], vec!["./none.sh", "x"]]);
    let found = follow("a.sh", "ARGS=\" \\\n  --num-layers 32\"\n", &[], &mut called).unwrap();
    assert_eq!((found.options[1].text.as_str(), found.options[1].line), ("32", 2));
    let error = follow("a.sh", "source c.sh\n", &[], &mut files).unwrap_err();
    assert_eq!((error.file.as_str(), error.trouble.line), ("c.sh", 2));
    assert!(error.trouble.text.contains("circle"), "{error:?}");
}

proptest::proptest! {
    #[test]
    fn any_script_comes_to_an_end(
        words in proptest::collection::vec(
            proptest::sample::select(vec![
                "if", "then", "fi", "for", "in", "do", "done", "case", "esac", "{", "}", "(", ")", "((", "))", "$(", "`",
                "\"", "'", "\\", "\n", ";", ";;", "&&", "||", "|", "<<E", "E", ">", "A=", "A+=(", "$A", "${A[@]}", "${A:-", "$((",
                "[[", "]]", "-z", "f()", "f", "eval", "bash -c", "source a.sh", " ", "x", "é", "#",
            ]),
            0..40,
        ),
    ) {
        let _ = follow("a.sh", &words.concat(), &[], &mut |_, path| (path == "a.sh").then(|| ("a.sh".to_owned(), "f $A".to_owned())));
        let _ = follow("a.sh", &words.join(" "), &[], &mut |_, _| None);
    }
}

#[test]
fn strange_scripts_come_to_an_end() {
    for text in [
        "f() { f; }\nf\n",
        "A=x\nA=$A$A$A$A\nA=$A$A$A$A\nA=$A$A$A$A\nA=$A$A$A$A\nA=$A$A$A$A\nA=$A$A$A$A\nA=$A$A$A$A\nA=$A$A$A$A\nA=$A$A$A$A\nA=$A$A$A$A\nA=$A$A$A$A\nA=$A$A$A$A\nrun $A",
        "eval eval eval",
        "if if if if",
        "case x in",
        "((((((((((",
        "${${${${",
        "\"$(\"`",
        "a() { b() { c() {",
        "))) ;; fi done esac }",
        "<<EOF\n",
        "for",
    ] {
        let _ = follow("a.sh", text, &[], &mut |_, _| None);
    }
    assert!(follow("a.sh", &"if true; then\n".repeat(200), &[], &mut |_, _| None).is_err());
}
