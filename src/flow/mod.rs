//! Flow control: what actions, groups and workgroups allow at the moment.

pub(crate) mod actions;
pub(crate) mod group_settings;
pub(crate) mod rates;
pub(crate) mod workgroups;
