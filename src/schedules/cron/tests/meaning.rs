//! What expressions mean: by a calendar on the wall, and by another reader.

use super::*;

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
    }
}
