//! Waiting and waking: every cause wakes, as many as there is work for, at once and not with the slow look; a sleep ends
//! by whatever ends it, and leaves nothing behind.

mod after_upkeep;
mod ends;
mod fan_in;
mod leaks;
mod leaving;
mod let_go;
mod locked;
mod looks;
mod many;
mod notify;
mod prepared;
mod several;
mod shown;
mod sleeper;
mod snapshot;
mod tables;
mod undisturbed;
mod wakes;
