use croner::parser::{CronParser, Seconds, Year};

use super::*;

fn at(text: &str) -> Time {
    let utc: DateTime<Utc> = text.parse().expect("a time");
    Time(utc.timestamp_micros() - POSTGRES_EPOCH)
}

/// The same expression, read by a library: its own words for what it reads wrongly (names in other fields, `7L`, elements that are
/// empty) are in no test that goes by it.
fn other(expression: &str) -> croner::Cron {
    let parser = CronParser::builder().seconds(Seconds::Optional).year(Year::Disallowed).build();
    parser.parse(expression).unwrap_or_else(|e| panic!("{expression}: {e}"))
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

#[test]
fn a_nightly_job_in_the_gap_of_spring_runs_once_right_after_it() {
    // Berlin: 02:00 to 03:00 does not exist on 2026-03-29.
    assert_eq!(
        next("30 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z", 2),
        ["2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"]
    );
}

#[test]
fn a_nightly_job_in_the_repeated_hour_of_autumn_runs_once() {
    // Berlin: 02:00 to 03:00 comes twice on 2026-10-25.
    assert_eq!(
        next("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z", 2),
        ["2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"]
    );
}

/// What the clocks of these zones show in the days around a change, in which `expression` runs.
fn shown(expression: &str, zone: &str, from: &str, days: i64) -> Vec<String> {
    let calendar = Calendar::parse(expression, zone).unwrap_or_else(|(_, e)| panic!("{e:?}"));
    let mut time = at(from);
    let end = time + Duration::from_secs(days as u64 * 86_400);
    std::iter::from_fn(|| {
        time = calendar.after(time)?;
        (time < end).then_some(time)
    })
    .map(|time| {
        let utc = DateTime::<Utc>::from_timestamp_micros(time.0 + POSTGRES_EPOCH).expect("a time");
        utc.with_timezone(&calendar.zone).format("%d %H:%M%z").to_string()
    })
    .collect()
}

#[test]
fn what_runs_before_a_gap_does_not_run_behind_it_once_more() {
    for (expression, zone, from, expected) in [
        ("15 1 * * *", "Europe/Berlin", "2030-03-30T12:00:00Z", ["31 01:15+0100", "01 01:15+0200"]),
        ("30 1 * * *", "America/New_York", "2030-03-09T12:00:00Z", ["10 01:30-0500", "11 01:30-0400"]),
        ("30 2 * * *", "America/Sao_Paulo", "2018-11-03T12:00:00Z", ["04 02:30-0200", "05 02:30-0200"]),
        ("30 3 * * *", "America/Santiago", "2030-09-07T12:00:00Z", ["08 03:30-0300", "09 03:30-0300"]),
        ("15 3 * * *", "Africa/Cairo", "2030-04-25T12:00:00Z", ["26 03:15+0300", "27 03:15+0300"]),
    ] {
        assert_eq!(shown(expression, zone, from, 2), expected, "{zone}");
    }
}

#[test]
fn all_that_a_gap_leaves_out_comes_as_one_run_right_after_it() {
    let spring = |expression| shown(expression, "Europe/Berlin", "2030-03-30T23:30:00Z", 1);
    for expression in ["*/15 2 * * *", "0,30 2 * * *", "* 2 * * *", "59 2 * * *", "0 2,3 * * *"] {
        assert_eq!(spring(expression), ["31 03:00+0200"], "{expression}");
    }
    assert_eq!(spring("45 1,2 * * *"), ["31 01:45+0100", "31 03:00+0200"]);
    // A whole day was left out.
    assert_eq!(
        shown("30 5 * * *", "Pacific/Apia", "2011-12-29T00:00:00Z", 3),
        ["29 05:30-1000", "31 00:00+1400", "31 05:30+1400", "01 05:30+1400"]
    );
}

#[test]
fn what_has_any_hour_goes_by_real_time() {
    let autumn = |expression| shown(expression, "Europe/Berlin", "2030-10-26T23:50:00Z", 1);
    assert_eq!(autumn("30 * * * *")[..3], ["27 02:30+0200", "27 02:30+0100", "27 03:30+0100"]);
    assert_eq!(autumn("5 */2 * * *")[..3], ["27 02:05+0200", "27 02:05+0100", "27 04:05+0100"]);
    assert_eq!(autumn("@hourly").len(), 24);
    assert_eq!(autumn("* * * * *").len(), 24 * 60 - 1);
    assert_eq!(autumn("30 0-23 * * *").len(), 23, "fixed hours");
}

/// Each zone changes its clocks by an hour, by half of one, at midnight, by a day, back or forward.
const CHANGES: [(&str, &str); 8] = [
    ("Europe/Berlin", "2030-03-29T00:00:00Z"),
    ("Europe/Berlin", "2030-10-25T00:00:00Z"),
    ("Australia/Lord_Howe", "2030-04-05T00:00:00Z"),
    ("Australia/Lord_Howe", "2030-10-04T00:00:00Z"),
    ("America/Sao_Paulo", "2018-11-02T00:00:00Z"),
    ("America/Sao_Paulo", "2018-02-16T00:00:00Z"),
    ("Pacific/Apia", "2011-12-28T00:00:00Z"),
    ("Pacific/Kwajalein", "1969-09-28T00:00:00Z"),
];

/// Minute by minute: a job at fixed hours has each of its times once, when the clock is first there or past it.
#[test]
fn the_times_over_a_change_of_the_clocks_are_those_that_a_clock_is_seen_to_show() {
    for (zone, from) in CHANGES {
        for expression in [
            "* * * * *",
            "*/20 * * * *",
            "5 */2 * * *",
            "15 1 * * *",
            "*/15 2 * * *",
            "30 0-23 * * *",
            "0 0 * * *",
            "45 1,2,23 * * *",
        ] {
            let calendar = Calendar::parse(expression, zone).unwrap_or_else(|(_, e)| panic!("{e:?}"));
            let begin = (at(from).0 + POSTGRES_EPOCH) / 1_000_000;
            let end = begin + 5 * 86_400;
            let shown = |time: i64| time + zone::offset(calendar.zone, time);
            let other = other(expression);
            let matches = |wall: i64| {
                let utc = DateTime::<Utc>::from_timestamp(wall, 0).expect("a time");
                other.is_time_matching(&utc).expect("a match")
            };
            let mut expected = Vec::new();
            // Up to where the clock has been before.
            let mut been = (begin - 86_400..begin).step_by(60).map(shown).max().expect("a time");
            for time in (begin..end).step_by(60) {
                let wall = shown(time);
                let is_time = match calendar.fields.any_hour {
                    true => matches(wall),
                    false => (been + 60..=wall).step_by(60).any(matches),
                };
                been = been.max(wall);
                if is_time {
                    expected.push(time);
                }
            }
            let mut found = Vec::new();
            let mut time = of_seconds(begin - 1);
            while let Some(next) = calendar.after(time).filter(|next| *next < of_seconds(end)) {
                found.push((next.0 + POSTGRES_EPOCH) / 1_000_000);
                time = next;
            }
            assert_eq!(found, expected, "{expression} in {zone}");
            let mut backwards = Vec::new();
            let mut time = of_seconds(end);
            while let Some(last) = calendar.before(time).filter(|last| *last >= of_seconds(begin)) {
                backwards.push((last.0 + POSTGRES_EPOCH) / 1_000_000);
                time = last;
            }
            backwards.reverse();
            backwards.dedup();
            assert_eq!(backwards, expected, "{expression} in {zone}, backwards");
        }
    }
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
fn the_last_times_over_a_change_of_the_clocks_are_those_found_forwards() {
    for (first, end) in
        [("2026-03-28T01:30:00Z", "2026-03-31T12:00:00Z"), ("2026-10-24T00:30:00Z", "2026-10-27T12:00:00Z")]
    {
        let calendar =
            Calendar::parse("30 2 * * *", "Europe/Berlin").unwrap_or_else(|(_, e)| panic!("{e:?}"));
        let forwards = calendar.first(at(first), at(end), usize::MAX);
        assert!(forwards.len() > 2, "{forwards:?}");
        for count in 1..=5 {
            let expected = &forwards[forwards.len().saturating_sub(count)..];
            assert_eq!(calendar.last(at(first), at(end), count), expected, "{count} from {first}");
        }
    }
}

#[test]
fn what_cannot_be_read_is_refused_by_argument() {
    assert_eq!(Calendar::parse("61 * * * *", "UTC").err().map(|e| e.0), Some("cron"));
    assert_eq!(Calendar::parse("* * *", "UTC").err().map(|e| e.0), Some("cron"));
    assert_eq!(Calendar::parse("* * * * *", "Mars/Olympus").err().map(|e| e.0), Some("timezone"));
}

/// What a crontab says of each field is known; here is when that is, from a calendar on the wall (2026: January begins on a
/// Thursday, February and November on a Sunday, August on a Saturday).
#[test]
fn expressions_mean_what_a_calendar_shows() {
    for (expression, from, expected) in [
        ("0 9 * JAN *", "2026-02-01", "2027-01-01T09:00:00Z 2027-01-02T09:00:00Z"),
        ("0 9 * jan,Mar-MAY *", "2026-02-01", "2026-03-01T09:00:00Z"),
        ("0 9 * * MON", "2026-01-01", "2026-01-05T09:00:00Z 2026-01-12T09:00:00Z"),
        ("0 9 * * mon-Fri", "2026-01-02", "2026-01-02T09:00:00Z 2026-01-05T09:00:00Z"),
        ("0 9 * * SAT-SUN", "2026-01-01", "2026-01-03T09:00:00Z 2026-01-04T09:00:00Z 2026-01-10T09:00:00Z"),
        ("0 9 * * 5-7", "2026-01-04", "2026-01-04T09:00:00Z 2026-01-09T09:00:00Z"),
        ("0 9 * * 7L", "2026-01-01", "2026-01-25T09:00:00Z 2026-02-22T09:00:00Z"),
        ("0 9 * * 0L", "2026-01-01", "2026-01-25T09:00:00Z 2026-02-22T09:00:00Z"),
        ("0 9 * * SUNL", "2026-01-01", "2026-01-25T09:00:00Z 2026-02-22T09:00:00Z"),
        ("0 9 * * FRIL", "2026-01-01", "2026-01-30T09:00:00Z 2026-02-27T09:00:00Z"),
        ("0 9 * * 7#1", "2026-01-01", "2026-01-04T09:00:00Z 2026-02-01T09:00:00Z"),
        (
            "0 9 * * MON#1,WED#5",
            "2026-01-01",
            "2026-01-05T09:00:00Z 2026-02-02T09:00:00Z 2026-03-02T09:00:00Z \
          2026-04-06T09:00:00Z 2026-04-29T09:00:00Z",
        ),
        ("0 9 L * *", "2026-01-01", "2026-01-31T09:00:00Z 2026-02-28T09:00:00Z"),
        ("0 9 L FEB *", "2028-01-01", "2028-02-29T09:00:00Z 2029-02-28T09:00:00Z"),
        ("0 9 LW * *", "2026-01-01", "2026-01-30T09:00:00Z 2026-02-27T09:00:00Z 2026-03-31T09:00:00Z"),
        ("0 9 1,lw * *", "2026-05-02", "2026-05-29T09:00:00Z 2026-06-01T09:00:00Z"),
        // Saturday the 15th of August; Sunday the 1st, and the 15th, of November; Saturday the 1st of August; Sunday the 31st of May.
        ("0 9 15W 8 *", "2026-01-01", "2026-08-14T09:00:00Z"),
        ("0 9 1W 11 *", "2026-01-01", "2026-11-02T09:00:00Z"),
        ("0 9 15W 11 *", "2026-01-01", "2026-11-16T09:00:00Z"),
        ("0 9 1W 8 *", "2026-01-01", "2026-08-03T09:00:00Z"),
        ("0 9 31W * *", "2026-04-01", "2026-05-29T09:00:00Z 2026-07-31T09:00:00Z"),
        ("0 9 13 * FRI", "2026-01-10", "2026-01-13T09:00:00Z 2026-01-16T09:00:00Z"),
        ("0 9 ? * FRI", "2026-01-10", "2026-01-16T09:00:00Z"),
        ("0 9 13 * ?", "2026-01-10", "2026-01-13T09:00:00Z 2026-02-13T09:00:00Z"),
        (
            "5/20 0 * * *",
            "2026-01-01",
            "2026-01-01T00:05:00Z 2026-01-01T00:25:00Z 2026-01-01T00:45:00Z 2026-01-02T00:05:00Z",
        ),
        ("0 */24 * * *", "2026-01-01", "2026-01-02T00:00:00Z"),
        ("0 9 * * 2/2", "2026-01-01", "2026-01-01T09:00:00Z 2026-01-03T09:00:00Z 2026-01-06T09:00:00Z"),
        ("30 4-6/2 * * *", "2026-01-01", "2026-01-01T04:30:00Z 2026-01-01T06:30:00Z 2026-01-02T04:30:00Z"),
        ("007 08 * * *", "2026-01-01", "2026-01-01T08:07:00Z"),
        (" 0\t9  * * * ", "2026-01-01", "2026-01-01T09:00:00Z"),
        ("15,45 30 9 * * *", "2026-01-01", "2026-01-01T09:30:15Z 2026-01-01T09:30:45Z 2026-01-02T09:30:15Z"),
        ("0 0 29 2 *", "2096-03-01", "2104-02-29T00:00:00Z"),
        ("0 0 * 2 MON#5", "2072-03-01", "2112-02-29T00:00:00Z"),
    ] {
        let expected: Vec<&str> = expected.split_whitespace().collect();
        let found = next(expression, "UTC", &format!("{from}T00:00:00Z"), expected.len());
        assert_eq!(found, expected, "{expression}");
    }
}

/// Day by day through forty years, by a library that reads the expression and by this one.
#[test]
fn days_are_those_of_another_reader() {
    for expression in [
        "0 9 * * *",
        "0 9 1-7 * *",
        "0 9 */2 * *",
        "0 9 31 * *",
        "0 9 30 2,3 *",
        "0 9 29 2 *",
        "0 9 L * *",
        "0 9 L 2 *",
        "0 9 1W * *",
        "0 9 15W * *",
        "0 9 31W * *",
        "0 9 28W 2 *",
        "0 9 29W 2 *",
        "0 9 30W,3W * *",
        "0 9 * * 1-5",
        "0 9 * * 5-7",
        "0 9 * * 0,3",
        "0 9 * * 5L",
        "0 9 * * 0L",
        "0 9 * * 1#1",
        "0 9 * * 3#5",
        "0 9 * * 7#2",
        "0 9 13 * 5",
        "0 9 1W * 1#2",
        "0 9 L 6-12/3 0L",
        "0 9 5/10 1/2 *",
        "0 9 * * */2",
    ] {
        let (calendar, other) = (Calendar::parse(expression, "UTC").unwrap(), other(expression));
        let mut day = at("2001-01-01T09:00:00Z");
        let (mut days, mut found) = (Vec::new(), Vec::new());
        let end = at("2041-01-01T00:00:00Z");
        let mut run = at("2001-01-01T00:00:00Z");
        while let Some(next) = calendar.after(run).filter(|next| *next < end) {
            found.push(next);
            run = next;
        }
        while day < end {
            let utc = DateTime::<Utc>::from_timestamp_micros(day.0 + POSTGRES_EPOCH).unwrap();
            if other.is_time_matching(&utc).unwrap() {
                days.push(day);
            }
            day = day + Duration::from_secs(86_400);
        }
        assert_eq!(found, days, "{expression}");
        let mut back = Vec::new();
        let mut run = end;
        while let Some(before) = calendar.before(run).filter(|before| *before > at("2001-01-01T00:00:00Z")) {
            back.push(before);
            run = before;
        }
        back.reverse();
        assert_eq!(back, days, "{expression}, backwards");
    }
}

/// Second by second through two days.
#[test]
fn times_are_those_of_another_reader() {
    for expression in [
        "* * * * * *",
        "*/7 */11 */5 * * *",
        "59 59 23 * * *",
        "0 0 0 * * *",
        "30 15-45/10 3,9,21 * * *",
        "5/20 1 * * * *",
        "17 * 4-6 * * *",
        "0 0/25 22-23 * * *",
    ] {
        let (calendar, other) = (Calendar::parse(expression, "UTC").unwrap(), other(expression));
        let (begin, end) = (1_800_000_000, 1_800_000_000 + 2 * 86_400);
        let expected: Vec<i64> = (begin..end)
            .filter(|time| {
                other.is_time_matching(&DateTime::<Utc>::from_timestamp(*time, 0).unwrap()).unwrap()
            })
            .collect();
        let forwards: Vec<i64> =
            std::iter::successors(calendar.fields.next(begin), |time| calendar.fields.next(time + 1))
                .take_while(|time| *time < end)
                .collect();
        assert_eq!(forwards, expected, "{expression}");
        let mut backwards: Vec<i64> = std::iter::successors(calendar.fields.previous(end - 1), |time| {
            calendar.fields.previous(time - 1)
        })
        .take_while(|time| *time >= begin)
        .collect();
        backwards.reverse();
        assert_eq!(backwards, expected, "{expression}, backwards");
    }
}

/// Each of these ran at times that its author did not mean, or never.
#[test]
fn what_has_no_clear_meaning_is_refused_with_a_hint() {
    for (expression, says, hint) in [
        (
            "0 9 MON * *",
            "day of month \"MON\" cannot be read: \"MON\" is the name of a day of the week",
            "last field",
        ),
        ("JAN * * * *", "minute \"JAN\" cannot be read: \"JAN\" is the name of a month", "last field"),
        (
            "0 FRI * * *",
            "hour \"FRI\" cannot be read: \"FRI\" is the name of a day of the week",
            "last field",
        ),
        ("0 9 * * JAN", "day of week \"JAN\" cannot be read: \"JAN\" is the name of a month", "last field"),
        ("0 9 * MON *", "month \"MON\"", "last field"),
        ("0 9 1-JAN * *", "day of month \"1-JAN\"", "last field"),
        ("1,,2 * * * *", "minute \"1,,2\" cannot be read: one of its elements is empty", "comma"),
        (",1 * * * *", "one of its elements is empty", "comma"),
        ("0 9 * * 1,", "one of its elements is empty", "comma"),
        (", * * * *", "one of its elements is empty", "comma"),
        ("0 9 * * L", "does not say of which day", "FRIL"),
        ("0 9 * * MON#6", "\"MON#6\" is none of the five", "FRI#1"),
        ("0 9 * * MON#0", "\"MON#0\" is none of the five", "FRI#1"),
        ("0 9 * * 8L", "\"8\" is no value from 0 to 7", "FRIL"),
        ("0 9 W * *", "day of month \"W\"", "15W"),
        ("0 9 1-5W * *", "day of month \"1-5W\"", "15W"),
        ("0 9 WL * *", "day of month \"WL\"", "LW"),
        ("0 9 L-3 * *", "\"L-3\" is no day", "LW"),
        ("0 9 15L * *", "\"15L\" is no day", "LW"),
        ("0 9 * * 15W", "day of week \"15W\"", "five fields"),
        ("L 9 * * *", "minute \"L\"", "five fields"),
        ("5-1 * * * *", "the range \"5-1\" goes backwards", "two ranges"),
        ("0 9 * * FRI-MON", "the range \"FRI-MON\" goes backwards", "two ranges"),
        ("*/0 * * * *", "has a step", "*/15"),
        ("*/ * * * *", "has a step", "*/15"),
        ("1/2/3 * * * *", "has a step", "*/15"),
        ("-5 * * * *", "\"\" is no value from 0 to 59", "five fields"),
        ("+5 * * * *", "\"+5\" is no value", "five fields"),
        ("0 9 * * +1", "\"+1\" is no value", "five fields"),
        ("0 9 1,? * *", "\"?\" is no value", "five fields"),
        ("? 9 * * *", "\"?\" is no value", "five fields"),
        ("0 9 0 * *", "\"0\" is no value from 1 to 31", "five fields"),
        ("99999999999999999999 9 * * *", "is no value from 0 to 59", "five fields"),
        ("* * * * * * *", "7 fields instead of 5 or 6", "five fields"),
        ("", "0 fields instead of 5 or 6", "five fields"),
        ("@", "no name of a cron expression", "@midnight"),
        ("@daily 5", "no name of a cron expression", "@midnight"),
        ("@weekly * * * *", "no name of a cron expression", "@midnight"),
        ("0 9 * * MONDAY", "\"MONDAY\" is no value", "five fields"),
        ("\u{ff11} * * * *", "is no value from 0 to 59", "five fields"),
    ] {
        let Err((argument, why)) = Calendar::parse(expression, "UTC") else { panic!("{expression} is read") };
        assert_eq!(argument, "cron", "{expression}");
        assert!(why.what.contains(says), "{expression}: {why:?}");
        assert!(why.hint.contains(hint), "{expression}: {why:?}");
    }
}

#[test]
fn calendars_are_equal_if_their_times_are() {
    let read = |expression: &str, zone: &str| Calendar::parse(expression, zone).unwrap();
    for (one, other) in [
        ("0 9 * * *", " 0  9 * * *\t"),
        ("0 9 * * MON", "0 9 * * 1"),
        ("0 9 * * sun", "0 0 9 * * 7"),
        ("0 0 * * *", "@Daily"),
        ("0,30 9 * * *", "*/30 9 * * *"),
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
