mod clocks;
mod meaning;
mod refused;

use super::*;

fn at(text: &str) -> Time {
    let utc: DateTime<Utc> = text.parse().expect("a time");
    Time(utc.timestamp_micros() - POSTGRES_EPOCH)
}

fn next(expression: &str, zone: &str, after: &str, count: usize) -> Vec<String> {
    let calendar = Calendar::parse(expression, zone).unwrap_or_else(|(_, e)| panic!("{e:?}"));
    let mut time = at(after);
    (0..count)
        .map(|_| {
            time = calendar.after(time).expect("another time");
            iso(time)
        })
        .collect()
}

#[test]
fn five_fields_and_six_with_seconds_are_read() {
    assert_eq!(next("5 4 * * *", "UTC", "2026-01-01T00:00:00Z", 1), ["2026-01-01T04:05:00Z"]);
    assert_eq!(
        next("*/10 * * * * *", "UTC", "2026-01-01T00:00:05Z", 2),
        ["2026-01-01T00:00:10Z", "2026-01-01T00:00:20Z"]
    );
    assert_eq!(next("0 12 * * MON", "UTC", "2026-01-01T00:00:00Z", 1), ["2026-01-05T12:00:00Z"]);
}

#[test]
fn a_range_of_one_sunday_is_that_day() {
    let sundays = next("0 12 * * 0", "UTC", "2026-01-01T00:00:00Z", 9);
    for days in ["SUN-SUN", "sun-Sun", "SUN-SUN/2", "SUN-SUN,SUN", "7-7", "0-0"] {
        assert_eq!(next(&format!("0 12 * * {days}"), "UTC", "2026-01-01T00:00:00Z", 9), sundays, "{days}");
    }
    let weekend = next("0 12 * * SUN-SUN,SAT", "UTC", "2026-01-01T00:00:00Z", 4);
    assert_eq!(weekend, next("0 12 * * 6,7", "UTC", "2026-01-01T00:00:00Z", 4));
    let weekend = next("0 12 * * SAT-SUN", "UTC", "2026-01-01T00:00:00Z", 4);
    assert_eq!(weekend, next("0 12 * * 6,7", "UTC", "2026-01-01T00:00:00Z", 4));
}

#[test]
fn the_names_of_crontabs_are_read() {
    for (name, fields) in [
        ("@hourly", "0 * * * *"),
        ("@daily", "0 0 * * *"),
        ("@midnight", "0 0 * * *"),
        ("@Midnight", "0 0 * * *"),
        ("@weekly", "0 0 * * 0"),
        ("@monthly", "0 0 1 * *"),
        ("@yearly", "0 0 1 1 *"),
        ("@annually", "0 0 1 1 *"),
    ] {
        let from = "2026-01-01T00:00:05Z";
        assert_eq!(next(name, "UTC", from, 3), next(fields, "UTC", from, 3), "{name}");
    }
    assert_eq!(Calendar::parse("@noon", "UTC").err().map(|e| e.0), Some("cron"));
}

fn last(expression: &str, zone: &str, first: &str, last: &str, count: usize) -> Vec<String> {
    let calendar = Calendar::parse(expression, zone).unwrap_or_else(|(_, e)| panic!("{e:?}"));
    calendar.last(at(first), at(last), count).into_iter().map(iso).collect()
}

#[test]
fn the_last_times_are_the_newest_and_no_more_than_asked_for() {
    let hourly = |first, end, count| last("0 * * * *", "UTC", first, end, count);
    let (first, end) = ("2026-01-01T01:00:00Z", "2026-01-01T05:20:00Z");
    assert_eq!(hourly(first, end, 2), ["2026-01-01T04:00:00Z", "2026-01-01T05:00:00Z"]);
    assert_eq!(hourly(first, end, 5).len(), 5);
    assert_eq!(hourly(first, end, 9).len(), 5);
    assert_eq!(hourly(first, "2026-01-01T05:00:00Z", 1), ["2026-01-01T05:00:00Z"]);
    assert_eq!(hourly(first, first, 3), ["2026-01-01T01:00:00Z"]);
    // Over twenty years of seconds.
    let seconds = last("* * * * * *", "UTC", "2006-01-01T00:00:00Z", "2026-01-01T00:00:00Z", 3);
    assert_eq!(seconds.last().map(String::as_str), Some("2026-01-01T00:00:00Z"));
    assert_eq!(seconds.len(), 3);
}

#[test]
fn calendars_are_equal_if_their_times_are() {
    let read = |expression: &str, zone: &str| Calendar::parse(expression, zone).unwrap();
    for (one, other) in [
        ("0 9 * * *", " 0  9 * * *\t"),
        ("0 9 * * MON", "0 9 * * 1"),
        ("0 9 * * sun", "0 0 9 * * 7"),
        ("0 0 * * *", "@Daily"),
        ("0 9 ? * *", "00 09 * * ?"),
    ] {
        assert!(read(one, "Europe/Berlin") == read(other, "europe/berlin"), "{one} and {other}");
    }
    for (one, other) in [
        ("0 9 * * *", "0 10 * * *"),
        // At a change of the clocks these differ.
        ("0 * * * *", "0 0-23 * * *"),
        ("0 9 13 * *", "0 9 13 * 5"),
    ] {
        assert!(read(one, "UTC") != read(other, "UTC"), "{one} and {other}");
    }
    assert!(read("0 9 * * *", "UTC") != read("0 9 * * *", "Europe/Berlin"));
}

#[test]
fn zones_are_found_in_any_case_and_the_one_that_is_meant_is_told() {
    for (name, zone) in
        [("europe/berlin", "Europe/Berlin"), ("utc", "UTC"), ("AMERICA/NEW_YORK", "America/New_York")]
    {
        assert_eq!(Calendar::parse("0 9 * * *", name).unwrap().zone(), zone);
    }
    for (name, hint) in [
        ("Europe/Berln", "\"Europe/Berlin\" is probably meant."),
        ("Europe Berlin", "\"Europe/Berlin\" is probably meant."),
        ("posix/Europe/Berlin", "Give a name"),
        ("localtime", "Give a name"),
        ("Factory", "Give a name"),
        ("+02:00", "Give a name"),
        ("", "Give a name"),
    ] {
        let Err((argument, why)) = Calendar::parse("0 9 * * *", name) else { panic!("{name} is read") };
        assert_eq!(argument, "timezone");
        assert!(why.what.contains(name) && why.hint.contains(hint), "{name}: {why:?}");
    }
}
