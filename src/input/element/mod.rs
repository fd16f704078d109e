//! Elements of JSON arrays, and tasks by themselves, read with serde straight from their text.

mod arrays;
mod awaited;
mod link;
mod read;
mod returned;
mod signalled;
mod task;

pub(super) use arrays::elements;
pub(crate) use arrays::{parse_awaited, parse_children, parse_dependencies, parse_tasks};
pub(crate) use awaited::AwaitedSpec;
pub(crate) use link::DependencySpec;
pub(super) use read::body_of;
pub(super) use returned::parse_return;
pub(crate) use returned::{ReturnSpec, Said};
pub(crate) use signalled::SignalSpec;
pub(super) use signalled::parse_signal;
pub(super) use task::parse_task;

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::awaited::RawAwaited;
    use super::link::RawDependency;
    use super::returned::RawReturn;
    use super::signalled::RawSignal;
    use super::task::RawTask;
    use crate::input::backoff;
    use crate::input::keys::BACKOFF;
    use crate::input::shape::Object;

    /// The keys that serde knows, from its complaint about one that it does not.
    fn known<'a, T: Deserialize<'a>>() -> Vec<String> {
        let error = serde_json::from_str::<T>(r#"{"no such key": 1}"#).err().unwrap().to_string();
        error.split('`').skip(3).step_by(2).map(str::to_owned).collect()
    }

    fn agree<'a, T: Deserialize<'a>>(object: &Object) {
        let mut read = known::<T>();
        let mut told: Vec<String> = object.keys.iter().map(|(key, _)| (*key).to_owned()).collect();
        read.sort();
        told.sort();
        assert_eq!(read, told, "{}", object.what);
    }

    #[test]
    fn the_keys_that_are_read_are_those_that_are_told() {
        agree::<RawTask>(&crate::input::keys::TASK);
        agree::<RawDependency>(&crate::input::keys::DEPENDENCY);
        agree::<RawAwaited>(&crate::input::keys::AWAITED);
        agree::<RawReturn>(&crate::input::keys::RETURN);
        agree::<RawSignal>(&crate::input::keys::SIGNAL);
        agree::<crate::input::unique::RawUnique>(&crate::input::keys::UNIQUE);
        agree::<backoff::RawBackoff>(&BACKOFF);
    }
}
