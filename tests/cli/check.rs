//! `check`: rules hold or do not as the rows say, whatever the format, and no id of a private dataset is shown.
#![expect(clippy::unwrap_used, reason = "tests fail loudly")]

use crate::support;

use std::collections::BTreeMap;

use serde_json::{Value, json};
use support::Folder;

/// Rules by column and name, with status and value.
fn rules(folder: &Folder, arguments: &str, code: i32) -> BTreeMap<String, Value> {
    let ran = folder.run(&format!("check {arguments} --json"));
    assert_eq!(ran.code, code, "{}{}", ran.stdout, ran.stderr);
    let named = |rule: &Value| match rule["column"].as_str() {
        Some(column) => format!("{column} {}", rule["rule"].as_str().unwrap()),
        None => rule["rule"].as_str().unwrap().to_owned(),
    };
    let objects = ran.objects().into_iter().filter(|object| object["type"] == "rule");
    objects.map(|rule| (named(&rule), rule)).collect()
}

fn statuses(rules: &BTreeMap<String, Value>) -> BTreeMap<&str, &str> {
    rules.iter().map(|(name, rule)| (name.as_str(), rule["status"].as_str().unwrap())).collect()
}

/// 600 rows: ids, a number that is null in every tenth, a city, and a day.
fn people() -> String {
    let row = |n: u32| {
        let age = if n.is_multiple_of(10) { String::new() } else { (n % 90).to_string() };
        format!("P-{n},{age},{},2026-01-{:02}\n", ["Bonn", "Kiel"][(n % 2) as usize], n % 28 + 1)
    };
    format!("id,age,city,day\n{}", (0..600).map(row).collect::<String>())
}

const RULES: &str = r#"
[volume]
min_records = 600
max_records = 600
max_change = 0.5
against = "previous"

[schema]
columns = { id = "text", age = "float64", gone = "text" }
extra_columns = false

[columns.id]
unique = true
pattern = "^P-[0-9]+$"

[columns.age]
not_null = true
max_null_share = 0.1
min = 0
max = 88.5
severity = "warn"

[columns.city]
accepted_values = ["Bonn", "Ulm"]

[columns.day]
min = 2026-01-01
max = 2026-01-28

[columns.citty]
not_null = true
"#;

#[test]
fn rules_are_decided_by_all_rows_in_every_format() {
    for format in ["parquet", "tar", "tfrecord"] {
        let folder = Folder::new();
        folder.write("people.csv", people());
        folder.write("rules.toml", RULES);
        folder.run(&format!("convert people.csv --out d --to {format} --id id --target-shard 8KiB --quiet")).ok();
        let rules = rules(&folder, "d --rules rules.toml", 1);
        let expected = [
            ("volume.min_records", "pass"),
            ("volume.max_records", "pass"),
            ("volume.max_change", "skip"),
            ("id schema.columns", "pass"),
            ("age schema.columns", "fail"),
            ("gone schema.columns", "fail"),
            ("schema.extra_columns", "fail"),
            ("id unique", "pass"),
            ("id pattern", "pass"),
            ("age not_null", "warn"),
            ("age max_null_share", "pass"),
            ("age min", "pass"),
            ("age max", "warn"),
            ("city accepted_values", "fail"),
            ("day min", "pass"),
            ("day max", "pass"),
            ("citty not_null", "fail"),
        ];
        assert_eq!(statuses(&rules), BTreeMap::from(expected), "{format}");
        assert_eq!(
            (&rules["age not_null"]["value"], &rules["age not_null"]["failed_records"]),
            (&json!(60.0), &json!(60))
        );
        // 89 is 6 times among 600, and never in a tenth row.
        assert_eq!(
            (&rules["age max"]["failed_records"], &rules["age max"]["examples"]),
            (&json!(6), &json!(["89"])),
            "{format}"
        );
        assert_eq!(rules["city accepted_values"]["examples"], json!(["Kiel"]));
        assert_eq!(rules["schema.extra_columns"]["found"], "`city`, `day`");
        assert!(rules["citty not_null"]["found"].as_str().unwrap().contains("there is a column `city`"));
        assert_eq!(rules["age not_null"]["line"], 17);
    }
}

#[test]
fn footers_decide_what_they_can_and_deleted_rows_do_not_count() {
    let folder = Folder::new();
    folder.write("in/a.csv", "id,x,y\n1,5,\n2,7,z\n");
    folder.write("in/b.csv", "id,x,y\n3,99,z\n");
    folder.run("convert in --out d --id id --quiet").ok();
    folder.write("rules.toml", "[columns.x]\nnot_null = true\nmin = 0\nmax = 99\n");
    let summary = folder.run("check d --rules rules.toml --json").ok().summary();
    assert_eq!((&summary["bytes_read"], &summary["status"]), (&json!(0), &json!("pass")));
    folder.write("less.toml", "[columns.x]\nmax = 10\n[columns.y]\nmax_null_share = 0.4\n");
    let found = rules(&folder, "d --rules less.toml", 1);
    assert_eq!((&found["x max"]["failed_records"], &found["y max_null_share"]["status"]), (&json!(1), &json!("pass")));
    folder.run("remove d --source b.csv --quiet").ok();
    let found = rules(&folder, "d --rules less.toml", 1);
    // One of two is null now.
    assert_eq!((&found["x max"]["status"], &found["y max_null_share"]["status"]), (&json!("pass"), &json!("fail")));
    assert_eq!(rules(&folder, "d --rules less.toml --at v1", 1)["x max"]["status"], "fail");
}

#[test]
fn samples_have_parts_as_columns() {
    let folder = Folder::new();
    for name in ["a", "b", "c"] {
        folder.write(&format!("in/{name}.jpg"), [0xff, 0xd8, 0xff, name.as_bytes()[0]]);
        folder.write(&format!("in/{name}.cls"), format!("{}\n", u8::from(name == "b")));
    }
    folder.write("in/d.jpg", [0xff, 0xd8, 0xff, b'a']);
    folder.run("convert in --out d --to tar --quiet").ok();
    folder.write(
        "rules.toml",
        "[columns.cls]\nnot_null = true\naccepted_values = [0, 1]\n[columns.jpg]\nunique = true\nnot_null = true\n",
    );
    let found = rules(&folder, "d --rules rules.toml", 1);
    let expected =
        [("cls accepted_values", "pass"), ("cls not_null", "fail"), ("jpg not_null", "pass"), ("jpg unique", "fail")];
    assert_eq!(statuses(&found), BTreeMap::from(expected));
    assert_eq!(found["jpg unique"]["failed_records"], 1);
}

#[test]
fn drift_volume_and_schema_are_compared_with_other_versions() {
    let folder = Folder::new();
    folder.write("in/a.csv", people());
    folder.run("convert in --out d --id id --quiet").ok();
    folder.run("manifest d --tag before --quiet").ok();
    folder.write("in/b.csv", people().replace("Bonn", "Rome").replace("P-", "Q-"));
    folder.run("convert in --out d --quiet").ok();
    folder.write(
        "rules.toml",
        "[volume]\nmax_change = 0.5\nagainst = \"before\"\n[schema]\nagainst = \"previous\"\nextra_columns = false\n\
         [drift]\nagainst = \"before\"\nmax_psi = 0.2\nmax_null_change = 0.01\ncolumns = [\"city\", \"age\"]\n",
    );
    let found = rules(&folder, "d --rules rules.toml", 1);
    assert_eq!(
        (&found["volume.max_change"]["status"], &found["volume.max_change"]["value"]),
        (&json!("fail"), &json!(1.0))
    );
    assert_eq!(
        (&found["city drift.max_psi"]["status"], &found["age drift.max_psi"]["status"]),
        (&json!("fail"), &json!("pass"))
    );
    assert_eq!(found["age drift.max_null_change"]["status"], "pass");
    assert_eq!(
        (&found["age schema.columns"]["status"], &found["schema.extra_columns"]["status"]),
        (&json!("pass"), &json!("pass"))
    );
    let drift = folder.run("manifest d --drift before v3 --json").objects();
    let city = drift.iter().find(|object| object["column"] == "city").unwrap();
    assert_eq!(found["city drift.max_psi"]["value"], city["psi"]);
    // A merge and a tag do not change what was there before.
    folder.run("compact d --min-inputs 2 --quiet").ok();
    folder.run("manifest d --tag after --quiet").ok();
    folder.write("less.toml", "[volume]\nmax_change = 0.5\nagainst = \"previous\"\n");
    assert_eq!(rules(&folder, "d --rules less.toml", 1)["volume.max_change"]["value"], 1.0);
    let missing = folder.run("check d --rules rules.toml --at v1");
    // The tag is of v1 itself.
    assert_eq!(missing.code, 0, "{}", missing.stdout);
    folder.write("never.toml", "[drift]\nagainst = \"never\"\nmax_psi = 0.2\n");
    let never = folder.run("check d --rules never.toml");
    assert_eq!(never.code, 2);
    assert!(never.stderr.contains("never.toml, line 2, character 11"), "{}", never.stderr);
}

#[test]
fn freshness_is_that_of_records_and_not_of_maintenance() {
    let folder = Folder::new();
    folder.write("in/a.csv", people());
    folder.run("convert in --out d --id id --quiet").ok();
    folder.write("rules.toml", "[freshness]\nmax_age = \"1h\"\n");
    assert_eq!(rules(&folder, "d --rules rules.toml", 0)["freshness.max_age"]["status"], "pass");
    folder.write("column.toml", "[freshness]\nmax_age = \"1d\"\ncolumn = \"day\"\n");
    let found = rules(&folder, "d --rules column.toml", 1);
    assert!(
        found["day freshness.max_age"]["found"].as_str().unwrap().contains("from 2026-01-28T00:00:00Z"),
        "{found:?}"
    );
    folder.write("text.toml", "[freshness]\nmax_age = \"1d\"\ncolumn = \"city\"\n");
    assert_eq!(rules(&folder, "d --rules text.toml", 1)["city freshness.max_age"]["status"], "fail");
}

#[test]
fn groups_on_two_splits_are_leaks() {
    let folder = Folder::new();
    let rows: String =
        (0..300).map(|n| format!("P-{},{n},{}\n", n % 40, if n % 40 < 30 { "train" } else { "test" })).collect();
    folder.write("in/a.csv", format!("who,n,half\n{rows}"));
    folder.run("convert in --out sound --subject who --split train=0.7,test=0.3 --quiet").ok();
    folder.write("by.toml", "[splits]\n");
    let found = rules(&folder, "sound --rules by.toml", 0);
    assert!(found["splits.leaks"]["found"].as_str().unwrap().starts_with("0 of 40 subjects"), "{found:?}");
    // Divided by rows, subjects are on both sides.
    folder.run("convert in --out leaky --subject who --split train=0.7,test=0.3 --split-by content --quiet").ok();
    let found = rules(&folder, "leaky --rules by.toml", 1);
    assert!(found["splits.leaks"]["value"].as_f64().unwrap() > 10.0, "{found:?}");
    assert_eq!(found["splits.leaks"]["examples"].as_array().unwrap().len(), 3);
    folder.run("convert in --out plain --quiet").ok();
    folder.write("column.toml", "[splits]\nby = \"who\"\ncolumn = \"half\"\n");
    assert_eq!(rules(&folder, "plain --rules column.toml", 0)["who splits.leaks"]["value"], 0.0);
    folder.write("in/b.csv", "who,n,half\nP-3,1,test\nP-35,1,test\n");
    folder.run("convert in --out plain --quiet").ok();
    let found = rules(&folder, "plain --rules column.toml", 1);
    assert_eq!(
        (&found["who splits.leaks"]["value"], &found["who splits.leaks"]["examples"]),
        (&json!(1.0), &json!(["P-3"]))
    );
    let undivided = folder.run("check plain --rules by.toml");
    assert_eq!(undivided.code, 2);
    assert!(undivided.stderr.contains("not divided"), "{}", undivided.stderr);
}

#[test]
fn private_ids_are_counted_and_not_shown() {
    let folder = Folder::new();
    folder.write("key", "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef");
    folder.write("in/a.csv", people() + "P-7,1,Bonn,2026-01-01\n");
    folder.run("convert in --out d --id id --id-mode hmac --id-key key --quiet").ok();
    folder.write(
        "rules.toml",
        "[columns.id]\nunique = true\npattern = \"^Q\"\nmin = \"Q\"\n[columns.city]\naccepted_values = [\"Bonn\"]\n",
    );
    for arguments in ["--json", "", "--prometheus -", "--verbose"] {
        let ran = folder.run(&format!("check d --rules rules.toml {arguments}"));
        assert_eq!(ran.code, 1, "{}", ran.stderr);
        assert!(!ran.stdout.contains("P-"), "{}", ran.stdout);
    }
    let found = rules(&folder, "d --rules rules.toml", 1);
    assert_eq!((&found["id unique"]["failed_records"], &found["id unique"]["examples"]), (&json!(1), &Value::Null));
    assert_eq!(found["city accepted_values"]["examples"], json!(["Kiel"]));
}

#[test]
fn metrics_and_events_say_the_same() {
    let folder = Folder::new();
    folder.write("in/a.csv", people());
    folder.run("convert in --out d --id id --quiet").ok();
    folder.write("rules.toml", "[columns.age]\nnot_null = true\n[columns.id]\nunique = true\n");
    let told = folder.run("check d --rules rules.toml --prometheus out.prom --openlineage events.jsonl --quiet");
    assert_eq!(told.code, 1);
    assert_eq!(told.stdout, "  FAIL  age not_null  60 of 600 records are null (10 %); expected no nulls\n");
    let metrics = std::fs::read_to_string(folder.path().join("out.prom")).unwrap();
    let place = folder.path().canonicalize().unwrap().join("d");
    let sample = format!(
        "shardify_check_rule_success{{dataset=\"{}\",rule=\"not_null\",severity=\"error\",column=\"age\"}} 0\n",
        place.display()
    );
    assert!(metrics.contains(&sample), "{metrics}");
    assert!(metrics.contains("# TYPE shardify_check_rule_success gauge\n"));
    let events = std::fs::read_to_string(folder.path().join("events.jsonl")).unwrap();
    let event: Value = serde_json::from_str(events.lines().last().unwrap()).unwrap();
    assert_eq!(
        (&event["eventType"], &event["job"]["name"], &event["outputs"]),
        (&json!("COMPLETE"), &json!("shardify.check"), &json!([]))
    );
    let facets = &event["inputs"][0]["inputFacets"];
    assert_eq!(
        facets["dataQualityAssertions"]["assertions"],
        json!([
            { "assertion": "not_null", "success": false, "severity": "error", "column": "age",
              "expected": "no nulls", "actual": "60 of 600 records are null (10 %)" },
            { "assertion": "unique", "success": true, "severity": "error", "column": "id",
              "expected": "different values", "actual": "600 values" },
        ])
    );
    assert_eq!(facets["dataQualityMetrics"]["columnMetrics"]["age"]["nullCount"], 60);
    assert_eq!(facets["dataQualityMetrics"]["columnMetrics"]["id"]["distinctCount"], 600);
    assert_eq!(folder.run("check d --rules rules.toml --prometheus - --json").code, 2);
    // A check that cannot be run leaves the metrics as they were.
    folder.write("bad.toml", "[columns.age]\nnot_null = 1\n");
    let bad = folder.run("check d --rules bad.toml --prometheus out.prom --json");
    assert_eq!(bad.code, 2);
    assert_eq!((&bad.error()["line"], &bad.error()["character"]), (&json!(2), &json!(12)));
    assert_eq!(std::fs::read_to_string(folder.path().join("out.prom")).unwrap(), metrics);
}

#[test]
fn an_empty_dataset_and_a_missing_file_are_told() {
    let folder = Folder::new();
    folder.write("in/a.csv", "id,x\n1,2\n");
    folder.run("convert in --out d --id id --quiet").ok();
    let missing = folder.run("check d --rules nowhere.toml");
    assert_eq!(missing.code, 2);
    assert!(missing.stderr.contains("expected a file of rules, found nothing"), "{}", missing.stderr);
    folder.write("rules.toml", "[volume]\nmin_records = 1\n[columns.x]\nunique = true\n");
    folder.run("remove d --source a.csv --quiet").ok();
    let found = rules(&folder, "d --rules rules.toml", 1);
    assert_eq!(statuses(&found), BTreeMap::from([("volume.min_records", "fail"), ("x unique", "pass")]));
    assert_eq!(folder.run("check nowhere --rules rules.toml").code, 2);
}

#[test]
fn dates_in_the_future_are_not_fresh() {
    let folder = Folder::new();
    folder.write("days.csv", "day,n\n2024-01-01,1\n2999-01-01,2\n");
    folder.run("convert days.csv --out d").ok();
    folder.write("rules.toml", "[freshness]\nmax_age = \"7d\"\ncolumn = \"day\"\n");
    let found = rules(&folder, "d --rules rules.toml", 1);
    let told = found["day freshness.max_age"]["found"].as_str().unwrap();
    assert_eq!(told, "from 2999-01-01T00:00:00Z, which is in the future");
    folder.write("large.toml", "[columns.n]\nmax = 18446744073709551614\n");
    let ran = folder.run("check d --rules large.toml");
    assert!(ran.code == 2 && ran.stderr.contains("beyond 9223372036854775807 in quotes"), "{ran:?}");
}
