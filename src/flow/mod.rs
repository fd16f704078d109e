//! Flow control: what an action, a group, a workgroup or a merge key allows at the moment.

pub(crate) mod actions;
pub(crate) mod backoff;
mod groups;
pub(crate) mod limits;
pub(crate) mod workgroups;
