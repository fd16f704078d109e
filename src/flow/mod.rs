//! Flow control: what an action, a group, a workgroup or a merge key allows at the moment.

pub(crate) mod actions;
pub(crate) mod group_settings;
pub(crate) mod rates;
pub(crate) mod workgroups;
