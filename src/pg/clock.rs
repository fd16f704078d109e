//! The server's clock, points in time, and what lies between them.

use std::ops::{Add, Sub};
use std::time::Duration;

use pgrx::datum::{Datum, Interval, UnboxDatum};
use pgrx::{FromDatum, IntoDatum, direct_function_call, pg_sys};

use super::quiet;
use super::throw::unless_refused;

/// Declares a kind of points in time: each clock has its own, so that what one shows is not taken for what another does.
macro_rules! points {
    ($($(#[$about:meta])* $name:ident;)*) => {
        $(
            $(#[$about])*
            ///
            /// It is as Postgres stores it: microseconds since 2000-01-01 UTC, and both infinities.
            #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
            pub(crate) struct $name(pub(crate) i64);

            impl $name {
                /// Later than any other.
                pub(crate) const INFINITY: $name = $name(i64::MAX);
                /// Earlier than any other.
                pub(crate) const BEGINNING: $name = $name(i64::MIN);

                /// How long it is from here to `later`: nothing, if that is not later.
                pub(crate) fn until(self, later: $name) -> Duration {
                    Duration::from_micros(later.0.saturating_sub(self.0).max(0) as u64)
                }
            }

            /// No later than infinity.
            impl Add<Duration> for $name {
                type Output = $name;

                fn add(self, duration: Duration) -> $name {
                    $name(self.0.saturating_add(micros(duration)))
                }
            }

            impl Sub<Duration> for $name {
                type Output = $name;

                fn sub(self, duration: Duration) -> $name {
                    $name(self.0.saturating_sub(micros(duration)))
                }
            }

            impl FromDatum for $name {
                unsafe fn from_polymorphic_datum(
                    datum: pg_sys::Datum,
                    is_null: bool,
                    _: pg_sys::Oid,
                ) -> Option<Self> {
                    (!is_null).then(|| $name(datum.value() as i64))
                }
            }

            // SAFETY: a timestamptz is passed by value, as the 64 bits that it is; nothing is borrowed.
            unsafe impl UnboxDatum for $name {
                type As<'src> = $name;

                unsafe fn unbox<'src>(datum: Datum<'src>) -> $name
                where
                    Self: 'src,
                {
                    // SAFETY: as the caller promises, a timestamptz.
                    $name(unsafe { i64::unbox(datum) })
                }
            }

            impl IntoDatum for $name {
                fn into_datum(self) -> Option<pg_sys::Datum> {
                    self.0.into_datum()
                }

                fn type_oid() -> pg_sys::Oid {
                    pg_sys::TIMESTAMPTZOID
                }
            }
        )*
    };
}

points! {
    /// A point in time by the queue's clock ([`clock`](crate::clock)), which a test may set: when a task is due, when a lease passes.
    Time;
    /// A point in time by the server's clock: until when something is left alone, when something was looked at.
    Wall;
}

impl Time {
    /// This time plus an interval, with months and days counted as Postgres counts them.
    pub(crate) fn plus(self, interval: Interval) -> Time {
        // SAFETY: timestamptz_pl_interval takes a timestamptz and an interval and has no other inputs.
        unsafe {
            direct_function_call::<Time>(
                pg_sys::timestamptz_pl_interval,
                &[self.into_datum(), interval.into_datum()],
            )
        }
        .unwrap_or(Time::INFINITY)
    }

    /// Microseconds since 2000-01-01 UTC, as Postgres stores it.
    pub(crate) fn to_micros(self) -> i64 {
        self.0
    }

    /// The time with so many of them.
    pub(crate) fn from_micros(micros: i64) -> Time {
        Time(micros)
    }

    /// The next point in time that can be told from this one.
    pub(crate) fn next(self) -> Time {
        Time(self.0.saturating_add(1))
    }

    /// The same by the server's clock. To be used where nothing replaces the queue's clock, or where it is a hint only.
    pub(crate) fn by_server(self) -> Wall {
        Wall(self.0)
    }
}

impl Wall {
    /// The same by the queue's clock, where nothing replaces that.
    pub(crate) fn by_queue(self) -> Time {
        Time(self.0)
    }

    /// The last whole unit up to here, counted from the beginning of 2000.
    pub(crate) fn floor(self, unit: Duration) -> Wall {
        let unit = micros(unit).max(1);
        Wall(self.0.div_euclid(unit).saturating_mul(unit))
    }
}

fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

/// How long an interval is, with days of 24 hours and months of 30 days. A negative one is 0 long.
pub(crate) fn length(interval: Interval) -> Duration {
    Duration::from_micros(u64::try_from(interval.as_micros().max(0)).unwrap_or(u64::MAX))
}

/// Now, by the server's clock.
pub(crate) fn wall() -> Wall {
    Wall(quiet::now())
}

/// What Postgres reads in this text as a timestamptz; `None` if it does not.
pub(crate) fn parse_timestamptz(text: &str) -> Option<Time> {
    parse(text, pg_sys::timestamptz_in)
}

/// What Postgres reads in this text as an interval; `None` if it does not.
pub(crate) fn parse_interval(text: &str) -> Option<Interval> {
    parse(text, pg_sys::interval_in)
}

/// Runs a type's input function; `None` if it refuses the text.
fn parse<T: FromDatum + std::panic::UnwindSafe>(
    text: &str,
    input: unsafe fn(pg_sys::FunctionCallInfo) -> pg_sys::Datum,
) -> Option<T> {
    let text = std::ffi::CString::new(text).ok()?;
    unless_refused(|| {
        // SAFETY: input functions take a C string, an unused oid and a typmod. They read no tables and
        // take no locks, so an error caught here leaves nothing behind that needs a rollback.
        unsafe {
            direct_function_call::<T>(
                input,
                &[text.as_c_str().into_datum(), 0i32.into_datum(), (-1i32).into_datum()],
            )
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_goes_beyond_infinity() {
        assert_eq!(Time::INFINITY + Duration::from_secs(1), Time::INFINITY);
        assert_eq!(Time(0) + Duration::MAX, Time::INFINITY);
        assert_eq!(Time::BEGINNING - Duration::from_secs(1), Time::BEGINNING);
        assert_eq!(Wall::BEGINNING.floor(Duration::from_secs(60)), Wall::BEGINNING);
    }

    #[test]
    fn what_is_not_later_is_no_time_away() {
        assert_eq!(Time(5).until(Time(12)), Duration::from_micros(7));
        assert_eq!(Time(12).until(Time(5)), Duration::ZERO);
        assert_eq!(Time(0).until(Time::BEGINNING), Duration::ZERO);
    }

    #[test]
    fn the_unit_before_the_epoch_ends_at_it() {
        let second = Duration::from_secs(1);
        assert_eq!(Wall(1_999_999).floor(second), Wall(1_000_000));
        assert_eq!(Wall(-1).floor(second), Wall(-1_000_000));
    }
}
