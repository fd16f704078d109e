//! Waiting and waking, for work and for a task: every cause wakes, as many as there is work for, at once and not with the slow look; a sleep ends
//! by whatever ends it, and leaves nothing behind. And NOTIFY, for those who
//! prefer to listen.

mod after_upkeep;
mod backlogs;
mod deadlines;
mod declared;
mod ends;
mod fan_in;
mod for_task;
mod in_time;
mod leaks;
mod leaving;
mod let_go;
mod locked;
mod looks;
mod many;
mod nearest;
mod notify;
mod post_result;
mod prepared;
mod several;
mod shown;
mod sleeper;
mod snapshot;
mod tables;
mod tender;
mod told;
mod undisturbed;
mod wakes;
mod without_id;
