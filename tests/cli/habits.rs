//! What people are used to from other tools: replacing everything, classes from a column, duplicates by a part, several
//! texts for null, names of formats, and notes about what has no effect.
#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests fail loudly and look at files")]

use crate::support::{Folder, Ran};

fn records(folder: &Folder, dataset: &str, at: &str) -> Vec<String> {
    let exported = folder.run(&format!("manifest {dataset} --export jsonl{at}")).ok();
    let id =
        |line: &str| serde_json::from_str::<serde_json::Value>(line).unwrap()["record_id"].as_str().unwrap().to_owned();
    exported.stdout.lines().map(id).collect()
}

fn summary_of(ran: Ran) -> serde_json::Value {
    ran.ok().summary()
}

#[test]
fn overwrite_replaces_all_records_in_one_version() {
    let folder = Folder::new();
    folder.write("in/a.csv", "id,v\na1,1\na2,2\n");
    folder.write("in/b.csv", "id,v\nb1,3\n");
    folder.run("convert in --id id --out ds").ok();
    folder.run("erase ds a2").ok();
    folder.write("in/b.csv", "id,v\nb1,4\nb2,5\n");
    folder.write("in/c.csv", "id,v\nc1,6\n");
    std::fs::remove_file(folder.path().join("in/a.csv")).unwrap();
    folder.write("in/d.csv", "id,v\na2,7\n");
    // Nothing else says what becomes of the source that is gone, or of the one that changed.
    assert_eq!(folder.run("convert in --id id --out ds").code, 8);
    let done = summary_of(folder.run("convert in --id id --out ds --overwrite --json"));
    assert_eq!(
        (&done["records_out"], &done["records_removed"], &done["records_erased"]),
        (&3.into(), &2.into(), &1.into())
    );
    assert_eq!(records(&folder, "ds", ""), ["b1", "b2", "c1"], "who was erased stays so");
    assert_eq!(records(&folder, "ds", " --at v2"), ["a1", "b1"], "older versions stay");
    // The same again: all is converted again, and nothing is there twice.
    folder.run("convert in --id id --out ds --overwrite").ok();
    assert_eq!(records(&folder, "ds", ""), ["b1", "b2", "c1"]);
    assert!(folder.run("convert in --id id --out ds").ok().stdout.contains("nothing to do"));
    folder.run("verify ds --read-data").ok();
    // Of a new dataset, there is nothing to replace.
    folder.run("convert in/c.csv --id id --out new --overwrite").ok();
    assert_eq!(records(&folder, "new", ""), ["c1"]);
}

#[test]
fn overwrite_compares_with_no_record_that_it_replaces() {
    let folder = Folder::new();
    folder.write("a.csv", "id\n1\n1\n2\n");
    folder.run("convert a.csv --dedup content --out ds").ok();
    let again = summary_of(folder.run("convert a.csv --out ds --overwrite --json"));
    assert_eq!((&again["records_out"], &again["records_deduplicated"]), (&2.into(), &1.into()));
}

#[test]
fn a_column_of_the_labels_is_the_class() {
    let folder = Folder::new();
    for name in ["a", "b", "c"] {
        folder.write(&format!("in/{name}.jpg"), name);
    }
    folder.write("names.csv", "file,kind,grade\na,dog,3\nb,cat,1\nc,,2\n");
    let classes = |dataset: &str| {
        let members = folder.members(dataset).into_iter().filter(|(name, _)| name.ends_with(".cls"));
        members.map(|(name, content)| (name, String::from_utf8(content).unwrap())).collect::<Vec<_>>()
    };
    let pair = |name: &str, class: &str| (format!("{name}.cls"), class.to_owned());
    folder.run("convert in --labels names.csv --label-column grade --out graded").ok();
    assert_eq!(classes("graded"), [pair("a", "3"), pair("b", "1"), pair("c", "2")]);
    // Names are numbered in their order; later runs keep the numbers, and need not name the column again.
    let named = folder.run("convert in --labels names.csv --label-column kind --out named").ok();
    assert!(named.stderr.contains("classes: cat = 0, dog = 1"), "{named:?}");
    assert_eq!(classes("named"), [pair("a", "1"), pair("b", "0")]);
    folder.write("more/d.jpg", "d");
    folder.write("more.csv", "file,kind,grade\nd,ant,9\n");
    folder.run("convert more --labels more.csv --out named").ok();
    assert_eq!(classes("named"), [pair("a", "1"), pair("b", "0"), pair("d", "2")]);
    // Tasks give the same classes.
    let plan =
        folder.run("plan convert in --labels names.csv --label-column kind --out planned --task-size 1 --json").ok();
    let plan = plan.summary()["plan"].as_str().unwrap().to_owned();
    folder.run(&format!("run-task {plan} --task 0..2")).ok();
    folder.run(&format!("commit {plan}")).ok();
    assert_eq!(classes("planned"), [pair("a", "1"), pair("b", "0")]);
    for (line, told) in [
        ("convert in --label-column kind --out x", "needs a table of labels"),
        ("convert in --labels names.csv --label-column kin --out x", "there is a column `kind`"),
        ("convert in --labels names.csv --label-column kind --label-from-folder --out x", "cannot be used with"),
        ("convert in --labels names.csv --label-column grade --out named", "with --label-column kind"),
    ] {
        let refused = folder.run(line);
        assert!(refused.code != 0 && refused.stderr.contains(told), "{line}: {refused:?}");
    }
    folder.write("odd.csv", "file,score\na,0.5\nb,1.5\nc,2.5\n");
    let odd = folder.run("convert in --labels odd.csv --label-column score --out x");
    assert!(odd.code == 6 && odd.stderr.contains("a whole number or the name of a class"), "{odd:?}");
    let report = folder.run("report named").ok();
    assert!(report.stdout.contains("0 cat (33.3 %), 1 dog (33.3 %), 2 ant (33.3 %)"), "{report:?}");
}

#[test]
fn duplicates_of_samples_may_be_those_of_a_part() {
    let folder = Folder::new();
    for (name, content) in
        [("in/a.jpg", "same"), ("in/a.txt", "1"), ("in/b.jpg", "same"), ("in/b.txt", "2"), ("in/c.txt", "1")]
    {
        folder.write(name, content);
    }
    let done = summary_of(folder.run("convert in --dedup jpg --out ds --json"));
    assert_eq!((&done["records_out"], &done["records_deduplicated"]), (&2.into(), &1.into()));
    assert_eq!(records(&folder, "ds", ""), ["a", "c"], "a sample without the part is compared as a whole");
    // So do samples in a table.
    folder.run("convert in --to parquet --out table").ok();
    let done = summary_of(folder.run("convert table --dedup jpg --out ds2 --to parquet --json"));
    assert_eq!((&done["records_out"], &done["records_deduplicated"]), (&2.into(), &1.into()));
    folder.write("later/d.jpg", "same");
    let later = summary_of(folder.run("convert later --out ds --json"));
    assert_eq!((&later["records_out"], &later["records_deduplicated"]), (&0.into(), &1.into()));
    let wrong = folder.run("convert in --dedup png --out other");
    assert!(wrong.code == 2 && wrong.stderr.contains("the parts are jpg, txt"), "{wrong:?}");
}

#[test]
fn several_texts_may_mean_null() {
    let folder = Folder::new();
    folder.write("a.csv", "x,y\n1,a\nNA,N/A\n-,b\n");
    for given in ["--null NA,N/A,-", "--null NA --null N/A --read null=-"] {
        let report = folder.run(&format!("convert a.csv --out ds {given} --overwrite")).ok();
        assert!(report.stderr.is_empty(), "{report:?}");
        let told = folder.run("report ds --json").ok();
        let nulls = |name: &str| told.objects().iter().find(|one| one["column"] == name).unwrap()["nulls"].clone();
        assert_eq!((nulls("x"), nulls("y")), (2.into(), 1.into()), "{given}");
    }
}

#[test]
fn names_of_formats_and_types_in_other_tools_are_understood() {
    let folder = Folder::new();
    folder.write("a.csv", "x,y\n1,2\n");
    let done = summary_of(folder.run("convert a.csv --to webdataset --out wds --json"));
    assert_eq!(done["format"], "tar");
    let types = summary_of(folder.run("convert a.csv --type x=str --type y=double --out typed --json"));
    assert_eq!(types["columns"], serde_json::json!([["x", "text"], ["y", "float64"]]));
}

#[test]
fn settings_without_effect_are_told() {
    let folder = Folder::new();
    folder.write("a.jsonl", "{\"x\":1}\n");
    let ran = folder.run("convert a.jsonl --delimiter ; --null NA --patch lat=2 --row-group 1MiB --to tar").ok();
    for note in [
        "--delimiter has no effect: it is for CSV, and the inputs are jsonl",
        "--null has no effect: it is for CSV and Excel, and the inputs are jsonl",
        "--patch has no effect: it is for arrays, and the inputs are jsonl",
        "--row-group has no effect: it is for Parquet shards, and these are tar",
    ] {
        assert!(ran.stderr.contains(note), "{note}: {ran:?}");
    }
    folder.write("a.csv", "x\n1\n");
    let both = folder.run("convert a.csv a.jsonl --delimiter ; --out both").ok();
    assert!(!both.stderr.contains("no effect"), "{both:?}");
}

#[test]
fn a_renamed_source_is_told() {
    let folder = Folder::new();
    folder.write("in/a.csv", "x\n1\n2\n");
    folder.run("convert in").ok();
    std::fs::rename(folder.path().join("in/a.csv"), folder.path().join("in/b.csv")).unwrap();
    let ran = folder.run("convert in").ok();
    assert!(ran.stderr.contains("`b.csv`: the dataset has the same content as `a.csv`"), "{ran:?}");
    assert!(!folder.run("convert in").ok().stderr.contains("same content"));
}

#[test]
fn there_is_a_manual_page_for_each_command() {
    let folder = Folder::new();
    folder.run("man --out pages/man1").ok();
    for name in ["shardify.1", "shardify-convert.1", "shardify-plan-convert.1"] {
        let page = std::fs::read_to_string(folder.path().join("pages/man1").join(name)).unwrap();
        assert!(page.contains(".TH"), "{name}");
    }
    let refused = folder.run("man --out /proc/nowhere");
    assert_eq!(refused.code, 5, "{refused:?}");
}

#[test]
fn records_of_an_id_are_shown_up_to_a_limit() {
    let folder = Folder::new();
    let rows: String = (0..50).map(|row| format!("{row},P\n")).collect();
    folder.write("a.csv", format!("id,who\n{rows}"));
    folder.run("convert a.csv --id id --subject who").ok();
    let found = folder.run("manifest --find P --limit 3").ok();
    assert!(found.stdout.contains("... and 47 records more"), "{found:?}");
    let summary = summary_of(folder.run("manifest --find P --limit 3 --json"));
    assert_eq!((&summary["hits"], &summary["shown"]), (&50.into(), &3.into()));
    folder.write("ids", "P\n7\n");
    let listed = summary_of(folder.run("manifest --find-file ids --limit 3 --json"));
    assert_eq!((&listed["hits"], &listed["shown"]), (&51.into(), &4.into()));
    assert_eq!(folder.run("manifest --limit 3").code, 2);
}

#[test]
fn a_report_names_nobody_unless_asked() {
    let folder = Folder::new();
    folder.write("a.csv", "id,who,v\nr1,PAT-00023,5\nr2,PAT-00042,6\n");
    folder.run("convert a.csv --id id --subject who").ok();
    for line in ["report", "report --json", "report --html page.html"] {
        let report = folder.run(line).ok();
        assert!(!report.stdout.contains("PAT-"), "{line}: {report:?}");
    }
    let page = std::fs::read_to_string(folder.path().join("page.html")).unwrap();
    assert!(!page.contains("PAT-") && page.contains("--ids"));
    assert!(folder.run("report --ids").ok().stdout.contains("PAT-00023"));
}

#[test]
fn a_trial_has_the_first_records_and_gets_no_others() {
    let folder = Folder::new();
    folder.write("in/a.csv", "id,v\na1,1\na2,2\na2,2\n");
    folder.write("in/b.csv", "id,v\nb1,3\nb2,x\nb3,4\n");
    folder.write("in/c.csv", "id,v\nc1,5\n");
    let convert = "convert in --id id --type v=int64 --on-error skip --dedup content --out ds";
    let ran = folder.run(&format!("{convert} --limit 3 --json"));
    assert_eq!(ran.code, 3, "one record was rejected");
    let done = ran.summary();
    let count = |name: &str| done[name].as_u64().unwrap();
    assert_eq!(records(&folder, "ds", ""), ["a1", "a2", "b1"]);
    assert_eq!((count("records_out"), count("sources")), (3, 2));
    assert_eq!(
        count("records_in"),
        count("records_out") + count("records_rejected") + count("records_deduplicated") + count("records_filtered"),
        "{done}"
    );
    // What was not read is no source of the dataset.
    let known = ["a", "b", "c"].map(|name| folder.run(&format!("remove ds --source in/{name}.csv --dry-run")).code);
    assert_eq!(known, [0, 0, 1]);
    folder.run("verify ds --read-data").ok();
    for more in [convert.to_owned(), format!("{convert} --limit 3")] {
        let refused = folder.run(&more);
        assert_eq!(refused.code, 2);
        assert!(refused.stderr.contains("a trial") && refused.stderr.contains("--overwrite"), "{}", refused.stderr);
    }
    assert_eq!(folder.run(&format!("{convert} --overwrite")).code, 3);
    assert_eq!(records(&folder, "ds", ""), ["a1", "a2", "b1", "b3", "c1"]);
    let refused = folder.run(&format!("{convert} --limit 3"));
    assert!(refused.code == 2 && refused.stderr.contains("a new dataset"), "{}", refused.stderr);
    // More than there are: all, and still a trial.
    assert_eq!(folder.run(&format!("{} --limit 100", convert.replace("ds", "all"))).code, 3);
    assert_eq!(records(&folder, "all", "").len(), 5);
}

#[test]
fn a_trial_of_samples_reads_the_files_of_the_first_ones() {
    let folder = Folder::new();
    for key in ["a", "b", "c"] {
        folder.write(&format!("in/{key}.txt"), key);
        folder.write(&format!("in/{key}.cls"), "1");
    }
    folder.run("convert in --limit 2 --out ds").ok();
    assert_eq!(records(&folder, "ds", ""), ["a", "b"]);
    let known = ["b", "c"].map(|name| folder.run(&format!("remove ds --source in/{name}.txt --dry-run")).code);
    assert_eq!(known, [0, 1]);
    // The records of splits come in turn; even shards are counted first.
    folder.write("rows.csv", (0..1000).fold("id\n".to_owned(), |text, id| format!("{text}{id}\n")));
    let options = "--id id --limit 100 --split train=0.8,val=0.2 --shards 2 --even";
    let done = summary_of(folder.run(&format!("convert rows.csv {options} --out rows --json")));
    assert_eq!(done["records_out"], 100);
    let mut ids: Vec<u32> = records(&folder, "rows", "").iter().map(|id| id.parse().unwrap()).collect();
    ids.sort_unstable();
    assert!(ids.into_iter().eq(0..100));
    assert_eq!(folder.run("plan convert rows.csv --limit 5 --out planned").code, 2);
}
