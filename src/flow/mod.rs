//! Flow control: what an action, a group, a workgroup or a merge key allows at the moment.

mod action_settings;
pub(crate) mod actions;
mod forget;
pub(crate) mod group_settings;
pub(crate) mod rates;
mod seats;
pub(crate) mod slots;
pub(crate) mod workgroups;
