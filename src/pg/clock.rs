//! The server's clock, and points in time.

use pgrx::datum::{Datum, Interval, UnboxDatum};
use pgrx::{FromDatum, IntoDatum, PgTryBuilder, direct_function_call, pg_sys};

/// A point in time as Postgres stores it: microseconds since 2000-01-01 UTC. Unlike pgrx's type it
/// costs nothing to convert and carries infinity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Time(pub(crate) i64);

impl Time {
    /// Later than any other.
    pub(crate) const INFINITY: Time = Time(i64::MAX);
    pub(crate) const BEGINNING: Time = Time(i64::MIN);

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

    /// Microseconds from `self` to `later`.
    pub(crate) fn until(self, later: Time) -> i64 {
        later.0.saturating_sub(self.0)
    }
}

impl FromDatum for Time {
    unsafe fn from_polymorphic_datum(datum: pg_sys::Datum, is_null: bool, _: pg_sys::Oid) -> Option<Self> {
        (!is_null).then(|| Time(datum.value() as i64))
    }
}

// SAFETY: a timestamptz is passed by value, as the 64 bits that it is; nothing is borrowed.
unsafe impl UnboxDatum for Time {
    type As<'src> = Time;

    unsafe fn unbox<'src>(datum: Datum<'src>) -> Time
    where
        Self: 'src,
    {
        // SAFETY: as the caller promises, a timestamptz.
        Time(unsafe { i64::unbox(datum) })
    }
}

impl IntoDatum for Time {
    fn into_datum(self) -> Option<pg_sys::Datum> {
        self.0.into_datum()
    }

    fn type_oid() -> pg_sys::Oid {
        pg_sys::TIMESTAMPTZOID
    }
}

/// Now, by the server's clock.
pub(crate) fn wall() -> Time {
    // SAFETY: reads the clock.
    Time(unsafe { pg_sys::GetCurrentTimestamp() })
}

/// What Postgres reads in this text as a timestamptz; `None` if it does not.
pub(crate) fn parse_timestamptz(text: &str) -> Option<Time> {
    parse(text, pg_sys::timestamptz_in)
}

/// What Postgres reads in this text as an interval; `None` if it does not.
pub(crate) fn parse_interval(text: &str) -> Option<Interval> {
    parse(text, pg_sys::interval_in)
}

/// Runs a type's input function, turning an error into `None`.
fn parse<T: FromDatum + std::panic::UnwindSafe>(
    text: &str,
    input: unsafe fn(pg_sys::FunctionCallInfo) -> pg_sys::Datum,
) -> Option<T> {
    let text = std::ffi::CString::new(text).ok()?;
    let input = std::panic::AssertUnwindSafe(input);
    PgTryBuilder::new(|| {
        // SAFETY: input functions take a C string, an unused oid and a typmod. They read no tables and
        // take no locks, so an error caught here leaves nothing behind that needs a rollback.
        unsafe {
            direct_function_call::<T>(
                *input,
                &[text.as_c_str().into_datum(), 0i32.into_datum(), (-1i32).into_datum()],
            )
        }
    })
    .catch_others(|_| None)
    .execute()
}
