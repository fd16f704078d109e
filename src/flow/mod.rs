//! Flow control: what an action, a group, a workgroup or a merge key allows at the moment.

pub(crate) mod actions;
mod concerned;
pub(crate) mod full_lanes;
pub(crate) mod group_settings;
pub(crate) mod known_lanes;
pub(crate) mod known_slots;
pub(crate) mod rates;
pub(crate) mod seats;
pub(crate) mod slots;
pub(crate) mod workgroups;
