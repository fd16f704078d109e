//! The surface: names, arguments, columns and types as the contract has them, NULLs and empty arrays everywhere, and
//! every refusal with its SQLSTATE and all its parts. What the operations do is tested area by area elsewhere.
//!
//! A client written against the contract breaks on any of these: a renamed column, a column in another place, an
//! argument that cannot be given by name, a NULL that crashes or is taken for an empty list, an error without a code.

mod in_the_way;
mod keys;
mod looks;
mod names;
mod notices;
mod nulls;
mod ranges;
mod refusals;
mod signatures;
mod views;
mod words;
