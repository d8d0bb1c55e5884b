//! Folders in well-known layouts whose files become samples although they hold tables or describe other files: notes
//! say so, and the command that they name works.

use crate::support;

use support::Folder;

const STOPS: &str = "stop_id,stop_name,lat\nS1,\"Main St, north\",50.5\nS2,b,51\n";

/// The part of a note from `shardify` on, as arguments.
fn command(stderr: &str, end: &str) -> String {
    let start = stderr.find("shardify convert ").unwrap_or_default() + "shardify ".len();
    stderr[start..].split(end).next().unwrap_or_default().replace('\'', "")
}

#[test]
fn tables_named_txt_are_told_with_the_command_that_reads_them() {
    let folder = Folder::new();
    folder.write("gtfs/stops.txt", STOPS);
    folder.write("gtfs/trips.txt", "route_id,trip_id\nR1,T1\nR2,T2\n");
    folder.write("gtfs/agency.txt", "agency_id,agency_name\nA,Agency\n");
    let ran = folder.run("convert gtfs --out samples").ok();
    assert!(ran.stderr.contains("looks like delimited text with the columns `agency_id,agency_name`"), "{ran:?}");
    assert!(ran.stderr.contains("each of the 3 files is stored whole"), "{ran:?}");
    let told = command(&ran.stderr, " --out");
    assert_eq!(told, "convert gtfs --from csv --include agency.txt");
    let table = folder.run(&format!("{} --out stops --json", told.replace("agency", "stops"))).ok();
    assert_eq!(table.summary()["records_out"], 2);
    let inspected = folder.run("inspect gtfs").ok();
    assert!(inspected.stdout.contains("looks like delimited text"), "{inspected:?}");
}

#[test]
fn prose_and_captions_beside_pictures_are_not_taken_for_tables() {
    let folder = Folder::new();
    folder.write("prose/a.txt", "Hello, world\nThis is, text\n");
    folder.write("prose/b.txt", "Once upon a time\nthere was a table\n");
    folder.write("pictures/a.txt", STOPS);
    folder.write("pictures/a.jpg", "jpg");
    for (source, options) in [("prose", ""), ("pictures", ""), ("pictures", "--from files")] {
        let ran = folder.run(&format!("convert {source} {options} --out {source}{}", options.len())).ok();
        assert!(!ran.stderr.contains("delimited text"), "{ran:?}");
    }
}

#[test]
fn annotations_of_coco_are_told_with_the_way_to_join_them() {
    let folder = Folder::new();
    let filler = " ".repeat(40_000);
    let document = format!(
        "{{\"info\":{{}},\"images\":[{{\"id\":1,\"file_name\":\"1.jpg\"}}],{filler}\"annotations\":[{{\"image_id\":1,\"bbox\":[1]}}],\
         \"categories\":[]}}"
    );
    folder.write("coco/annotations/instances_val.json", document);
    folder.write("coco/val/1.jpg", "jpg");
    let ran = folder.run("convert coco --out ds").ok();
    for part in [
        "`annotations/instances_val.json` has the annotations of pictures in COCO's form",
        "jq -c",
        "--labels labels.jsonl",
    ] {
        assert!(ran.stderr.contains(part), "{part}: {ran:?}");
    }
    folder.write("other/annotations/a.json", "{\"x\":1}");
    folder.write("other/a.jpg", "jpg");
    assert!(!folder.run("convert other --out others").ok().stderr.contains("COCO"));
}

#[test]
fn a_dataset_in_bids_is_told_with_the_options_for_its_recordings() {
    let folder = Folder::new();
    folder.write("bids/README", "text");
    folder.write("bids/dataset_description.json", "{\"BIDSVersion\":\"1.8.0\"}");
    folder.copy("nifti/standard.nii.gz", "bids/sub-01/func/sub-01_task-rest_bold.nii.gz");
    folder.write("bids/sub-01/func/sub-01_task-rest_bold.json", "{}");
    let ran = folder.run("convert bids --out all").ok();
    assert!(ran.stderr.contains("a dataset in BIDS"), "{ran:?}");
    folder.write("bids/participants.tsv", "participant_id\tage\nsub-01\t30\n");
    let refused = folder.run("convert bids --out ds");
    assert_eq!(refused.code, 2, "{refused:?}");
    let hint = "--from files --include 'sub-*/**' --subject-from-path bids";
    let images = "--from nifti --include 'sub-*/**/*.nii*' --subject-from-path bids";
    for hint in [hint, images] {
        assert!(refused.stderr.contains(hint) && ran.stderr.contains(hint), "{refused:?}");
    }
    let told = command(&ran.stderr, ";");
    let converted = folder.run(&format!("{told} --out ds --json")).ok();
    assert_eq!(converted.summary()["records_out"], 1);
    let found = folder.run("manifest ds --export jsonl").ok().stdout;
    assert!(found.contains("\"subject_id\":\"sub-01\""), "{found}");
}
